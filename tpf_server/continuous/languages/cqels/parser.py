"""Parse CQELS-QL: SPARQL 1.1 with windows over streams.

``STREAM <iri> [window] { … }`` stands where ``GRAPH`` may stand; the papers write the window also
before the IRI. Its quad patterns get a reserved graph name, for which `ContinuousQuery.windows` has
the window. ``STREAM ?s`` is to streams what ``GRAPH ?g`` is to named graphs.

Other differences from SPARQL 1.1:

- ``GROUP BY ?v`` where ``?v`` names an expression of the SELECT clause groups by that expression;
  HAVING may use the names of the SELECT clause (DEBS queries, paper 001).
- An aggregate in the SELECT clause needs no brackets: ``COUNT(?x) AS ?n`` (Q5 of paper 000).
- MEDIAN is an aggregate.
- FROM NAMED leaves the default graph as it is.
- Relative IRIs are relative to `BASE` where the query has no BASE of its own.

Source: paper 000, section 4.1; paper 001, section 2.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NoReturn

from annotations.terms import Term, Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    Extend,
    Path,
    Pattern,
    Project,
    VariableRef,
)
from tpf_client.sparql.parser import AGGREGATES, Dialect, Parser
from tpf_client.sparql.rewrite.graph import (
    grounded,
    same_if_joined_before,
    same_where_bound,
)
from tpf_client.sparql.rewrite.visitor import everything, join, renamed, transformed
from tpf_client.sparql.tokens import Token
from tpf_server.continuous.languages.csparql.parser import (
    positive_length,
    positive_number,
    time_length,
)
from tpf_server.continuous.runtime.delivery import wanted_variables
from tpf_server.continuous.runtime.errors import as_continuous_errors
from tpf_server.continuous.runtime.semantics import BASE
from tpf_server.continuous.runtime.static.service_clauses import with_graphs
from tpf_server.continuous.runtime.windows.continuous_query import (
    MARK,
    VARYING_MARK,
    ContinuousQuery,
    WindowClause,
    name_of_stream,
)
from tpf_server.continuous.runtime.windows.specification import (
    All,
    Now,
    Range,
    Triples,
    Window,
)


@lru_cache(maxsize=512)
def parse(text: str, base: str = BASE) -> ContinuousQuery:
    """Parse a CQELS-QL query.

    Raises:
        ContinuousSyntaxError: the text is no query; the error has line and column.
        UnsupportedContinuousQueryError: the algebra cannot express it.
    """
    streams = _StreamClauses()
    with as_continuous_errors():
        query, services = with_graphs(Parser(text, base, streams.dialect()).query())
    if query.form in ("CONSTRUCT", "DESCRIBE") and isinstance(query.pattern, Project):
        # A variable that the template lacks, or that is not described, is one that nobody needs.
        query = replace(query, pattern=replace(query.pattern, variables=wanted_variables(query)))
    return ContinuousQuery(query, tuple(streams.windows), text, services)


class _StreamClauses:
    """The STREAM clauses of one query; `windows` holds those that were parsed."""

    def __init__(self) -> None:
        self.windows: list[WindowClause] = []
        self._in_stream = False

    def dialect(self) -> Dialect:
        return Dialect(
            elements={"STREAM": self._stream, "GRAPH": self._graph},
            functions={"NOW": _now},
            tokens=_with_brackets,
            select_names=True,
            continuous=True,
        )

    def _graph(self, parser: Parser, before: Pattern) -> Pattern:
        self._check_outside(parser)
        return parser.graph_clause(before)

    def _stream(self, parser: Parser, before: Pattern) -> Pattern:
        self._check_outside(parser)
        if parser.at("["):
            window = _window(parser)
            stream = parser.variable_or_iri()
        else:
            stream = parser.variable_or_iri()
            if not parser.at("["):
                parser.expected("a window in square brackets")
            window = _window(parser)
        number = len(self.windows)
        varies = is_variable(stream)
        graph = Variable(f"{VARYING_MARK}{number}") if varies else Term(f"<{MARK}{number}>")
        self.windows.append(WindowClause(stream, window, graph))
        self._in_stream = True
        with parser.inside(graph):
            pattern = parser.group_graph_pattern()
        self._in_stream = False
        if varies:
            pattern = _of_streams(parser, pattern, Variable(graph), Variable(stream))
        return join(before, pattern)

    def _check_outside(self, parser: Parser) -> None:
        if self._in_stream:
            word = parser.ahead(-1)
            parser.fail(f"{word.text} cannot stand inside STREAM", word.position)


def _now(parser: Parser) -> NoReturn:
    parser.refuse(
        "CQELS-QL has no NOW(): use C-SPARQL or RSP-QL, or the instant of each emission",
        parser.token.position,
    )


def _window(parser: Parser) -> Window:
    parser.expect("[")
    if parser.take_word("NOW"):
        result: Window = Now()
    elif parser.take_word("ALL"):
        result = All()
    elif parser.take_word("TRIPLES"):
        result = Triples(positive_number(parser, "a number of triples"))
    elif parser.take_word("RANGE"):
        width = time_length(parser)
        slides = parser.take_word("SLIDE")
        result = Range(width, positive_length(parser, "SLIDE", time_length) if slides else None)
    else:
        parser.expected("NOW, ALL, RANGE or TRIPLES")
    parser.expect("]")
    return result


def _of_streams(parser: Parser, pattern: Pattern, graph: Variable, name: Variable) -> Pattern:
    """Return a pattern over every stream, with the stream as the value of a variable."""
    pattern = grounded(pattern, graph, parser.fresh)
    if same_if_joined_before(pattern, name):
        return _naming(pattern, graph, name)
    inside = parser.fresh("g")
    pattern = _naming(renamed(pattern, name, inside), graph, name)
    return same_where_bound(pattern, inside, name)


def _naming(pattern: Pattern, graph: Variable, name: Variable) -> Pattern:
    """Give `name` the value of `graph` in a pattern over every stream."""
    if any(isinstance(each, Path) for each in everything(pattern)):
        # What a path is made of is not seen here.
        return Extend(pattern, name, VariableRef(graph))
    window = Term(f"<{MARK}{graph.removeprefix(VARYING_MARK)}>")

    def change(part: Pattern) -> Pattern:
        if not isinstance(part, BGP) or all(each.graph != graph for each in part.patterns):
            return part
        there = [p._replace(graph=window) if p.graph == graph else p for p in part.patterns]
        return BGP((*there, name_of_stream(window, name)))

    return renamed(transformed(pattern, change), graph, name)


def _with_brackets(tokens: list[Token]) -> list[Token]:
    """Put brackets around ``COUNT(?x) AS ?n`` where a SELECT clause has none."""
    result: list[Token] = []
    selecting = False
    position = 0
    while position < len(tokens):
        token = tokens[position]
        word = token.text.upper() if token.kind == "word" else ""
        if word == "SELECT":
            selecting = True
        elif word in ("WHERE", "FROM") or token.text == "{":
            selecting = False
        elif selecting and token.text == "(" and token.kind == "sign":
            end = _closing(tokens, position)
            result.extend(tokens[position : end + 1])
            position = end + 1
            continue
        elif selecting and word in AGGREGATES and tokens[position + 1].text == "(":
            end = _closing(tokens, position + 1) + 2
            if end < len(tokens) and tokens[end - 1].text.upper() == "AS":
                inner = tokens[position : end + 1]
                result.append(Token("sign", "(", token.position))
                result.extend(inner)
                result.append(Token("sign", ")", inner[-1].end))
                position = end + 1
                continue
        result.append(token)
        position += 1
    return result


def _closing(tokens: list[Token], opening: int) -> int:
    depth = 0
    for position in range(opening, len(tokens)):
        if tokens[position].kind == "sign" and tokens[position].text in "()":
            depth += 1 if tokens[position].text == "(" else -1
            if not depth:
                return position
    return len(tokens) - 1
