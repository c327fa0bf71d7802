"""What Spark cannot run, refused before anything starts, by clause and place in the text."""

from annotations.terms import Term
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Pattern
from tpf_client.sparql.rewrite.conditions import exists_in
from tpf_client.sparql.rewrite.visitor import patterns_in
from tpf_client.sparql.scopes import in_scope
from tpf_client.sparql.tokens import tokenize
from tpf_server.continuous.csparql.csparql_query import CsparqlQuery
from tpf_server.continuous.csparql.operator_graph import OperatorGraph
from tpf_server.continuous.csparql.windows import LogicalWindow
from tpf_server.continuous.engine.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.engine.spoken_time import says_now


def check_supported(parsed: CsparqlQuery, graph: OperatorGraph) -> None:
    """Refuse what cannot be run on Spark.

    Args:
        parsed: the query, which knows its text.
        graph: its operators.

    Raises:
        UnsupportedContinuousQueryError: names the clause and its place.
    """
    if not parsed.streams:
        raise UnsupportedContinuousQueryError("a query without FROM STREAM cannot be run on Spark")
    for clause in parsed.streams:
        if not isinstance(clause.window, LogicalWindow):
            place = _place(parsed.text, clause.position)
            raise UnsupportedContinuousQueryError(
                f"{place}{clause}: windows that count triples cannot be run on Spark, which keeps "
                "no order of arrival; only natively"
            )
    if graph.query.form == "DESCRIBE":
        raise UnsupportedContinuousQueryError(
            f"{_word(parsed.text, 'DESCRIBE')}DESCRIBE follows blank nodes to any depth, which "
            "Spark SQL cannot; only natively"
        )
    if says_now(parsed.query):
        raise UnsupportedContinuousQueryError(
            f"{_word(parsed.text, 'NOW')}NOW() cannot be said on Spark, which evaluates many "
            "instants at once; only natively"
        )
    for service in parsed.services:
        raise UnsupportedContinuousQueryError(
            f"{_word(parsed.text, 'SERVICE')}SERVICE {service.endpoint} cannot be asked on Spark; "
            "only natively"
        )
    for pattern in patterns_in(graph.pattern):
        if isinstance(pattern, algebra.Path):
            source = graph.sources.of(Term(pattern.graph))
            if source is not None and source.streams:
                position = next((at for path, at in parsed.paths if path == pattern.path), None)
                place = "" if position is None else _place(parsed.text, position)
                raise UnsupportedContinuousQueryError(
                    f"{place}a path from {pattern.subject} to {pattern.object} over streams: "
                    "Spark SQL has no closure; only natively"
                )
        _check_bindings(pattern)


def _check_bindings(pattern: Pattern) -> None:
    """Refuse BIND in EXISTS of what has a value outside, as the native execution does."""
    outside = {name for child in algebra.children(pattern) for name in in_scope(child)}
    for expression in algebra.expressions_of(pattern):
        for exists in exists_in(expression):
            for inner in algebra.walk(exists.pattern):
                if isinstance(inner, algebra.Extend) and inner.variable in outside:
                    raise UnsupportedContinuousQueryError(
                        f"BIND of {inner.variable} inside EXISTS, which has a value outside"
                    )


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f"line {line}, column {column}: "


def _word(text: str, word: str) -> str:
    """The place of the first word like this one."""
    for token in tokenize(text):
        if token.kind == "word" and token.text.upper() == word:
            return _place(text, token.position)
    return ""
