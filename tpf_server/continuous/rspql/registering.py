"""Starts queries of RSP-QL on the engine of C-SPARQL, which evaluates windows that are graphs."""

from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.periodic_query import AnswerCallback
from tpf_server.continuous.rspql.parser import parse
from tpf_server.continuous.rspql.reporting_query import ReportingQuery
from tpf_server.continuous.rspql.rspql_query import WINDOW_CLOSE, ReportPolicy, TickPolicy


def register(
    engine: CsparqlEngine,
    text: str,
    callback: AnswerCallback | None = None,
    *,
    name: str | None = None,
    report: ReportPolicy = WINDOW_CLOSE,
    tick: TickPolicy = "time",
) -> ReportingQuery:
    """Start a query; it sees what arrives from now on.

    Args:
        engine: any.
        text: RSP-QL.
        callback: is called with each `PeriodicAnswer`; without one they wait in the result.
        name: what to call it where the text does not say.
        report: when it answers, where the text does not say.
        tick: where it is looked for these instants, where the text does not say.

    Raises:
        ContinuousSyntaxError: the text is no query.
        UnsupportedContinuousQueryError: it cannot be run, see `CsparqlEngine.register`.
        UnknownGraphError: by setting, it names a static graph that is not there.
        LimitError: there are as many queries as allowed, or there is one of this name.
    """
    query = parse(text, engine.base, report, tick)
    started = engine.start(query, callback, name=name, kind=ReportingQuery)
    assert isinstance(started, ReportingQuery)
    return started
