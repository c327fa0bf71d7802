"""Start queries of RSP-QL on the engine of C-SPARQL."""

from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.periodic_query import AnswerCallback, PeriodicQuery
from tpf_server.continuous.rspql.parser import parse
from tpf_server.continuous.rspql.rspql_query import WINDOW_CLOSE, ReportPolicy, TickPolicy


def register(
    engine: CsparqlEngine,
    text: str,
    callback: AnswerCallback | None = None,
    *,
    name: str | None = None,
    report: ReportPolicy = WINDOW_CLOSE,
    tick: TickPolicy = "time",
) -> PeriodicQuery:
    """Start a query; it sees later elements.

    Args:
        engine: of C-SPARQL.
        text: RSP-QL.
        callback: takes each `PeriodicAnswer`; without one they wait in the query.
        name: where the text has none.
        report: the policy where the text has none.
        tick: the policy where the text has none.

    Raises:
        ContinuousSyntaxError: the text is no query.
        UnsupportedContinuousQueryError: see `CsparqlEngine.register`.
        UnknownGraphError: it names an absent static graph, which is required.
        LimitError: there are too many queries, or there is one of this name.
    """
    query = parse(text, engine.base, report, tick)
    return engine.start(query, callback, name=name)
