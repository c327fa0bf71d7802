"""C-SPARQL: SPARQL 1.1 with registration, windows over streams, AGGREGATE and timestamps.

What differs from SPARQL 1.1, beside the new clauses:

- Prologue and dataset clauses may also stand before and after REGISTER … AS.
- A variable may have hyphens in its name (``?total-sensor``), and commas may separate the
  variables of SELECT; the paper writes both.
- ``^^`` before a variable is the conjunction that the paper prints so (section 3.4).
- FROM STREAM and AGGREGATE belong to the outermost query only.
- A relative IRI, and the name of a registered stream, is relative to `BASE`.

Source: paper 003, section 2.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

from annotations.terms import Term, Variable, iri
from tpf_client.sparql.algebra import (
    Aggregate,
    Aggregated,
    Call,
    Constant,
    DatasetClause,
    Expression,
    Filter,
    Pattern,
    VariableRef,
)
from tpf_client.sparql.cursor import Cursor
from tpf_client.sparql.iris import resolve
from tpf_client.sparql.parser import Dialect, Parser
from tpf_client.sparql.scopes import in_scope
from tpf_client.sparql.tokens import Token
from tpf_server.continuous.runtime.errors import as_continuous_errors
from tpf_server.continuous.runtime.instants.csparql_query import (
    TIMESTAMP,
    CsparqlQuery,
    LogicalWindow,
    PhysicalWindow,
    RegisterClause,
    SteppedWindow,
    StreamClause,
)
from tpf_server.continuous.runtime.semantics import BASE
from tpf_server.continuous.runtime.static.service_clauses import with_graphs
from tpf_server.continuous.runtime.windows.specification import nanoseconds_of


def words_of_the_paper(tokens: list[Token]) -> list[Token]:
    """Join hyphenated names, drop commas in SELECT, read ``^^ ?v`` as ``&&``."""
    result: list[Token] = []
    selecting = False
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "word" and token.text.upper() in ("SELECT", "FROM", "WHERE"):
            selecting, depth = token.text.upper() == "SELECT", 0
        elif token.kind == "sign":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == "{":
                selecting = False
            elif token.text == "," and selecting and not depth:
                continue
            elif token.text == "^^" and tokens[index + 1].kind == "variable":
                token = token._replace(text="&&")
        last = result[-1] if result else None
        if (
            token.kind == "word"
            and last is not None
            and len(result) > 1
            and last.text == "-"
            and last.end == token.position
            and result[-2].kind == "variable"
            and result[-2].end == last.position
            and tokens[index + 1].text != "("
        ):
            result.pop()
            name = result.pop()
            token = Token("variable", f"{name.text}-{token.text}", name.position)
        result.append(token)
    return result


_FUNCTIONS = ("COUNT", "SUM", "AVG", "MIN", "MAX")


@lru_cache(maxsize=512)
def parse(text: str, base: str = BASE) -> CsparqlQuery:
    """Parse a C-SPARQL query.

    Raises:
        ContinuousSyntaxError: the text is no query, or contradicts itself; with line and column.
        UnsupportedContinuousQueryError: the algebra cannot express it.
    """
    with as_continuous_errors():
        clauses = _Clauses()
        return clauses.query(Parser(text, base, clauses.dialect()))


class _Clauses:
    def __init__(self) -> None:
        self._streams: list[StreamClause] = []
        self._timestamps: list[tuple[Term | Variable | None, int]] = []

    def dialect(self) -> Dialect:
        return Dialect(
            functions={TIMESTAMP: self._timestamp},
            tokens=words_of_the_paper,
            from_clause=self._from_stream,
            after_where=_aggregates,
            continuous=True,
        )

    def query(self, parser: Parser) -> CsparqlQuery:
        parser.prologue()
        registration, kind = _registration(parser)
        parser.prologue()
        early = DatasetClause()
        if parser.at_word("FROM"):
            early = parser.dataset()
            parser.prologue()
        form = parser.token
        query = parser.query()
        if registration is not None and kind is not None:
            if registration.stream is not None and query.form == "ASK":
                parser.fail("REGISTER STREAM needs triples, and ASK gives none", form.position)
            if not self._streams and registration.every is None:
                parser.fail(
                    "neither FROM STREAM nor COMPUTED EVERY says when to evaluate this",
                    kind.position,
                )
        query = replace(query, dataset=_merged(early, query.dataset))
        self._check_timestamps(parser)
        streams, paths = tuple(self._streams), tuple(parser.repeated_paths)
        query, services = with_graphs(query)
        return CsparqlQuery(query, streams, registration, parser.text, paths, services)

    def _from_stream(self, parser: Parser, start: int, is_named: bool) -> bool:
        if not parser.take_word("STREAM"):
            return False
        position = parser.token.position
        if parser.token.kind == "variable":
            parser.fail("FROM STREAM names a stream by an IRI, not by a variable")
        stream = parser.iri()
        if any(stream == clause.stream for clause in self._streams):
            parser.fail(f"FROM STREAM {stream} stands here twice", position)
        if not parser.at("["):
            parser.expected("a window in square brackets behind FROM STREAM")
        parser.advance()
        parser.expect_word("RANGE")
        window = _physical(parser) if parser.take_word("TRIPLES") else _logical(parser)
        parser.expect("]")
        self._streams.append(StreamClause(stream, window, is_named, start))
        return True

    def _timestamp(self, parser: Parser) -> Expression:
        start = parser.advance().position
        parser.expect("(")
        name = parser.variable()
        graph: Term | Variable | None = None
        arguments: tuple[Expression, ...] = (VariableRef(name),)
        if parser.take(","):
            if parser.token.kind == "variable":
                graph = parser.variable()
                arguments += (VariableRef(graph),)
            else:
                graph = parser.iri()
                arguments += (Constant(graph),)
        parser.expect(")")
        self._timestamps.append((graph, start))
        return Call(TIMESTAMP, arguments)

    def _check_timestamps(self, parser: Parser) -> None:
        streams = {clause.stream for clause in self._streams}
        for graph, position in self._timestamps:
            if not streams:
                parser.fail("timestamp() in a query without FROM STREAM", position)
            if graph is not None and graph.startswith("<") and graph not in streams:
                parser.fail(f"timestamp() of {graph}, which is no stream of this query", position)


def _registration(parser: Parser) -> tuple[RegisterClause | None, Token | None]:
    if not parser.take_word("REGISTER"):
        return None, None
    kind = parser.token
    if not parser.at_word("QUERY", "STREAM"):
        parser.expected("QUERY or STREAM")
    word = parser.advance().text.upper()
    name, stream = _name(parser)
    every = None
    if parser.take_word("COMPUTED"):
        parser.expect_word("EVERY")
        every = positive_length(parser, "COMPUTED EVERY", time_length)
    parser.expect_word("AS")
    return RegisterClause(name, None if word == "QUERY" else stream, every), kind


def _name(parser: Parser) -> tuple[str, Term]:
    if parser.at_iri():
        term = parser.iri()
        return term[1:-1], term
    token = parser.token
    if token.kind == "string":
        text = parser.string()
    elif token.kind == "word" and not parser.at_word("COMPUTED", "AS"):
        text = parser.advance().text
    else:
        parser.expected("the name of the query")
    if not text or any(character in '<>"{}|^`\\' or character <= " " for character in text):
        parser.fail(f"{text!r} cannot name a query", token.position)
    return text, iri(resolve(parser.base or BASE, text))


def _logical(parser: Parser) -> SteppedWindow:
    width = positive_length(parser, "RANGE", time_length)
    if parser.take_word("TUMBLING"):
        return LogicalWindow(width, width)
    if not parser.at_word("STEP"):
        parser.expected("STEP or TUMBLING")
    parser.advance()
    position = parser.token.position
    step = positive_length(parser, "STEP", time_length)
    if step > width:
        parser.fail(f"STEP {step}ms is longer than RANGE {width}ms", position)
    return LogicalWindow(width, step)


def _physical(parser: Parser) -> SteppedWindow:
    count = positive_number(parser, "a number of triples")
    if parser.take_word("TUMBLING"):
        return PhysicalWindow(count, count)
    if not parser.take_word("STEP"):
        return PhysicalWindow(count)
    position = parser.token.position
    step = positive_number(parser, "a number of triples")
    if step > count:
        parser.fail(f"STEP {step} is longer than RANGE TRIPLES {count}", position)
    return PhysicalWindow(count, step)


def positive_number(cursor: Cursor, what: str) -> int:
    """Parse a whole number above 0."""
    position = cursor.token.position
    number = cursor.whole_number(what)
    if not number:
        cursor.fail(f"expected {what}, found '0'", position)
    return number


CursorT = TypeVar("CursorT", bound=Cursor)
_WITH_UNITS: Final = re.compile(r"(\d{1,18})([^\d]*)")


def positive_length(cursor: CursorT, what: str, duration: Callable[[CursorT], int]) -> int:
    """Parse a duration of at least a millisecond."""
    position = cursor.token.position
    length = duration(cursor)
    if not length:
        cursor.fail(f"{what} takes at least one millisecond", position)
    return length


def time_length(cursor: Cursor) -> int:
    """Parse ``500ms``, ``1h 30m`` or ``1h30m``, as whole milliseconds (rounded down)."""
    total = 0
    while True:
        number = cursor.whole_number("a duration such as 10m or 500ms")
        # What a unit is followed by, without a space, is of the same word.
        parts = _WITH_UNITS.findall(f"{number}{cursor.token.text}")
        lengths = [nanoseconds_of(unit) for _, unit in parts]
        if cursor.token.kind != "word" or None in lengths:
            cursor.expected("a unit of time: ms, s, m, h or d")
        total += sum(
            int(count) * length for (count, _), length in zip(parts, lengths, strict=True) if length
        )
        cursor.advance()
        if cursor.token.kind != "integer":
            return total // 1_000_000


def _aggregates(parser: Parser, pattern: Pattern, outermost: bool) -> Pattern:
    if not parser.at_word("AGGREGATE"):
        return pattern
    if not outermost:
        parser.fail("AGGREGATE belongs to the outermost query")
    scope = in_scope(pattern)
    clauses: list[tuple[Variable, Aggregate, tuple[Variable, ...]]] = []
    filters: list[Expression] = []
    while parser.take_word("AGGREGATE"):
        parser.expect("{")
        while True:
            clauses.append(_aggregate_clause(parser, scope, [name for name, *_ in clauses]))
            while parser.take_word("FILTER"):
                filters.append(parser.constraint())
            if parser.take("}"):
                break
            if not parser.at("("):
                parser.expected("'(', FILTER or '}'")
    # All are computed from the solutions of WHERE; only then the conditions select.
    for name, aggregate, keys in clauses:
        pattern = Aggregated(pattern, name, aggregate, keys)
    for condition in filters:
        pattern = Filter(pattern, condition)
    return pattern


def _aggregate_clause(
    parser: Parser, scope: tuple[Variable, ...], others: list[Variable]
) -> tuple[Variable, Aggregate, tuple[Variable, ...]]:
    parser.expect("(")
    position = parser.token.position
    name = parser.variable()
    if name in scope or name in others:
        parser.fail(f"{name} has a value already: AGGREGATE needs a new variable", position)
    parser.expect(",")
    token = parser.token
    if not parser.at_word(*_FUNCTIONS):
        parser.expected(", ".join(_FUNCTIONS[:-1]) + f" or {_FUNCTIONS[-1]}")
    function = parser.advance().text.upper()
    argument: Expression | None = None
    distinct = False
    if parser.take("("):
        distinct = parser.take_word("DISTINCT")
        if not (function == "COUNT" and (parser.take("*") or parser.at(")"))):
            argument = VariableRef(_of_where(parser, scope))
        parser.expect(")")
    if argument is None and function != "COUNT":
        parser.fail(f"{function} needs a variable as its argument", token.position)
    parser.expect(",")
    keys: list[Variable] = []
    if parser.take("{"):
        keys.append(_of_where(parser, scope))
        while parser.take(","):
            keys.append(_of_where(parser, scope))
        parser.expect("}")
    else:
        keys.append(_of_where(parser, scope))
    parser.expect(")")
    return name, Aggregate(function, argument, distinct), tuple(dict.fromkeys(keys))


def _of_where(parser: Parser, scope: tuple[Variable, ...]) -> Variable:
    position = parser.token.position
    name = parser.variable()
    if name not in scope:
        parser.fail(f"{name} does not occur in WHERE: AGGREGATE can use nothing else", position)
    return name


def _merged(one: DatasetClause, other: DatasetClause) -> DatasetClause:
    return DatasetClause(one.default + other.default, one.named + other.named)
