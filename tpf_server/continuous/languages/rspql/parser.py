"""Parse RSP-QL: SPARQL 1.1 with named windows over streams.

The clauses of papers 005 and 006, and their variants in implementations, are in ``docs/rspql.md``.
The prologue may also stand before and after REGISTER, with full stops behind its declarations;
patterns outside of ``GRAPH`` see all triples of a window; GROUP BY and HAVING may use names of the
SELECT clause.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final, cast

from annotations.errors import InstantError
from annotations.instants import parse_instant
from annotations.terms import (
    DEFAULT_GRAPH,
    Term,
    TermOrVariable,
    Variable,
    is_variable,
)
from tpf_client.sparql.algebra import (
    BGP,
    NOTHING,
    Call,
    Extend,
    Join,
    PathExpression,
    Pattern,
    Union,
    Values,
    VariableRef,
)
from tpf_client.sparql.cursor import Cursor
from tpf_client.sparql.parser import Dialect, Emit, Parser
from tpf_client.sparql.rewrite.graph import grounded, same_where_bound
from tpf_client.sparql.rewrite.visitor import join, renamed
from tpf_client.sparql.scopes import mentioned
from tpf_server.continuous.languages.csparql.parser import positive_length, positive_number
from tpf_server.continuous.languages.rspql.rspql_query import (
    STREAM_OPERATORS,
    TICKS,
    WINDOW_CLOSE,
    ElementWindow,
    ReportPolicy,
    RspqlQuery,
    SlidingWindow,
    TickPolicy,
    report_instants,
)
from tpf_server.continuous.runtime.elements.elements import milliseconds
from tpf_server.continuous.runtime.errors import as_continuous_errors
from tpf_server.continuous.runtime.instants.csparql_query import (
    TIMESTAMP,
    RegisterClause,
    SteppedWindow,
    StreamClause,
    StreamOperator,
    graph_variable,
)
from tpf_server.continuous.runtime.semantics import BASE
from tpf_server.continuous.runtime.static.service_clauses import with_graphs
from tpf_server.continuous.runtime.windows.specification import nanoseconds_of

_ISO: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{1,3})\d*)?S)?)?",
    re.IGNORECASE,
)
_ISO_UNITS: Final = (86_400_000, 3_600_000, 60_000, 1000)


def _window(cursor: Cursor) -> SteppedWindow:
    """Parse ``[RANGE … STEP …]``, ``[FROM NOW-… TO NOW-… STEP …]`` or ``[ELEMENTS … STEP …]``."""
    if not cursor.at("["):
        cursor.expected("a window in square brackets")
    cursor.advance()
    position = cursor.token.position
    if cursor.take_word("ELEMENTS"):
        result: SteppedWindow = _counted(cursor)
    else:
        if cursor.take_word("RANGE"):
            width, past = positive_length(cursor, "RANGE", _duration), 0
        elif cursor.take_word("FROM"):
            begin = _before_now(cursor)
            cursor.expect_word("TO")
            past = _before_now(cursor)
            width = begin - past
            if width < 1:
                cursor.fail("a window begins before it ends", position)
        else:
            cursor.expected("RANGE, FROM or ELEMENTS")
        step = positive_length(cursor, "STEP", _duration) if _stepping(cursor) else width
        result = SlidingWindow(width, step, _beginning(cursor), past)
    if not cursor.at("]"):
        cursor.expected("']'")
    cursor.advance()
    return result


def _stepping(cursor: Cursor) -> bool:
    cursor.take(",")
    return cursor.take_word("STEP") or cursor.take_word("SLIDE")


def _counted(cursor: Cursor) -> ElementWindow:
    count = positive_number(cursor, "a number of elements")
    stepping = _stepping(cursor)
    return ElementWindow(count, positive_number(cursor, "a number of elements") if stepping else 1)


def _before_now(cursor: Cursor) -> int:
    cursor.expect_word("NOW")
    return _duration(cursor) if cursor.take("-") else 0


def _beginning(cursor: Cursor) -> int:
    if not cursor.take_word("STARTING"):
        return 0
    cursor.expect_word("AT")
    position = cursor.token.position
    if cursor.token.kind == "integer":
        return cursor.whole_number()
    text = cursor.string()
    if cursor.take("^^"):
        cursor.iri()
    try:
        return milliseconds(parse_instant(text))
    except InstantError:
        cursor.fail(f"{text!r} is no instant with a time zone", position)


def _duration(cursor: Cursor) -> int:
    """Parse ``PT10S``, ``10 s``, ``10s``, or a number of milliseconds; in milliseconds."""
    begin = cursor.token.position
    if cursor.token.kind == "integer":
        number = cursor.whole_number("a duration")
        unit = cursor.token.text if cursor.token.kind == "word" else ""
        length = nanoseconds_of(unit)
        if length is None:
            if cursor.at_word("STEP", "SLIDE", "TO", "STARTING", "TICK", "AS") or not unit:
                return number
            cursor.expected("a unit of time: ms, s, m, h or d")
        cursor.advance()
        return number * length // 1_000_000
    match = _ISO.match(cursor.text, begin)
    if match is None or cursor.token.kind not in ("word", "name"):
        cursor.expected("a duration such as PT10S or 10s")
    # Its words are those that begin within it.
    while cursor.token.position < match.end() and cursor.token.kind != "end":
        if cursor.token.end > match.end():
            cursor.fail("expected a duration of days, hours, minutes and seconds", begin)
        cursor.advance()
    if not any(match.groups()):
        cursor.fail(f"'{cursor.text[begin : match.end()]}' is a duration of nothing", begin)
    parts = zip(match.groups()[:4], _ISO_UNITS, strict=True)
    whole = sum(int(number) * unit for number, unit in parts if number)
    return whole + int((match[5] or "0").ljust(3, "0"))


def _report_policy(cursor: Cursor) -> ReportPolicy:
    policy = ReportPolicy()
    while True:
        position = cursor.token.position
        if cursor.take_word("WINDOW"):
            cursor.expect_word("CLOSE")
            new = replace(policy, window_close=True)
        elif cursor.take_word("CONTENT"):
            cursor.expect_word("CHANGE")
            new = replace(policy, content_change=True)
        elif cursor.take_word("NON"):
            cursor.take("-")
            cursor.expect_word("EMPTY")
            cursor.expect_word("CONTENT")
            new = replace(policy, non_empty=True)
        elif cursor.take_word("PERIODIC"):
            if policy.period is not None:
                cursor.fail("PERIODIC stands here twice", position)
            new = replace(policy, period=positive_length(cursor, "PERIODIC", _duration))
        else:
            cursor.expected("WINDOW CLOSE, CONTENT CHANGE, NON-EMPTY CONTENT or PERIODIC")
        if new == policy:
            cursor.fail("this strategy stands here twice", position)
        policy = new
        if not cursor.take(",") and not cursor.take_word("AND"):
            return policy


def _tick_policy(cursor: Cursor) -> TickPolicy:
    tick = cursor.token.text.lower()
    if cursor.token.kind != "word" or tick not in TICKS:
        cursor.expected("TIME, BATCH or TUPLE")
    cursor.advance()
    return tick


# GRAPH inside WINDOW: patterns over the named graphs that elements are.


def named(
    pattern: Pattern, hidden: Variable, graph: TermOrVariable, fresh: Callable[[], Variable]
) -> Pattern:
    """Make ``GRAPH graph { … }`` of its parsed content, which lies in the graph `hidden`."""
    if not is_variable(graph):
        return Join(Values((hidden,), ((Term(graph),),)), pattern)
    name = Variable(graph)
    if name not in mentioned(pattern):
        return Extend(pattern, name, VariableRef(hidden))
    # Inside it is a variable like any other, compared with the graph afterwards.
    inner = fresh()
    pattern = Extend(renamed(pattern, name, inner), name, VariableRef(hidden))
    return same_where_bound(pattern, inner, name)


_MARK = "urn:x-rspql:window:"
"""What the graphs of windows begin with, so that no static graph is called like them."""
_GRAPHS_MARK = "urn:x-rspql:graphs:"
"""The same of windows of named graphs."""


@lru_cache(maxsize=512)
def parse(
    text: str, base: str = BASE, report: ReportPolicy = WINDOW_CLOSE, tick: TickPolicy = "time"
) -> RspqlQuery:
    """Parse an RSP-QL query; policies apply where the text has none.

    Raises:
        ContinuousSyntaxError: the text is no query, or contradicts itself; with line and column.
        UnsupportedContinuousQueryError: the algebra cannot express it.
    """
    with as_continuous_errors():
        clauses = _Clauses(report, tick)
        return clauses.query(Parser(text, base, clauses.dialect()))


def parse_report(text: str) -> ReportPolicy:
    """Parse a report policy: ``window close, non-empty content``.

    Raises:
        ContinuousSyntaxError: the text is none.
    """
    with as_continuous_errors():
        cursor = Cursor(text)
        policy = _report_policy(cursor)
        if cursor.token.kind != "end":
            cursor.expected("a comma, or the end of the strategies")
    return policy


class _Clauses:
    def __init__(self, report: ReportPolicy, tick: TickPolicy) -> None:
        self._policy = report
        self._tick = tick
        self._report_at = 0
        self._tick_at: int | None = None
        self._operator: StreamOperator | None = None
        self._windows: list[StreamClause] = []
        self._inside: StreamClause | None = None
        self._in_graphs: list[StreamClause] = []
        self._graph_patterns = 0
        self._graphs: list[TermOrVariable | None] = []

    def dialect(self) -> Dialect:
        return Dialect(
            elements={"WINDOW": self._window_clause, "GRAPH": self._graph_clause},
            after_form=self._form_operator,
            from_clause=self._from_window,
            after_group=self._begin_at,
            template=self._template,
            select_names=True,
            stops_in_prologue=True,
            continuous=True,
        )

    def query(self, parser: Parser) -> RspqlQuery:
        parser.prologue()
        position = self._report_at = parser.token.position
        registration = self._registration(parser)
        parser.prologue()
        query, services = with_graphs(parser.query())
        if not self._windows:
            parser.fail(
                "FROM NAMED WINDOW is missing: nothing says when to evaluate this", position
            )
        self._check_policies(parser)
        variables = frozenset(Variable(each) for each in self._graphs if each and is_variable(each))
        own = self._tick != "time"
        windows = tuple(
            replace(each, window=replace(each.window, own=True))
            if own and isinstance(each.window, SlidingWindow)
            else each
            for each in (*self._windows, *self._in_graphs)
        )
        return RspqlQuery(
            query,
            windows,
            registration,
            parser.text,
            services=services,
            wanted=variables,
            operator=self._operator or "RSTREAM",
            report=self._policy,
            tick=self._tick,
            graphs=tuple(self._graphs) if any(self._graphs) else (),
        )

    def _registration(self, parser: Parser) -> RegisterClause | None:
        if not parser.take_word("REGISTER"):
            return None
        if not parser.at_word("STREAM", *STREAM_OPERATORS):
            parser.expected("STREAM, ISTREAM, DSTREAM or RSTREAM")
        word = parser.advance().text.upper()
        if word != "STREAM":
            self._operator = cast("StreamOperator", word)
        if not parser.at_iri():
            parser.expected("the IRI of the output stream")
        stream = parser.iri()
        if parser.take_word("UNDER"):
            parser.fail(
                "UNDER ENTAILMENT REGIME: nothing is entailed here", parser.ahead(-1).position
            )
        if parser.take_word("REPORT"):
            self._report_at = parser.token.position
            self._policy = _report_policy(parser)
        if parser.take_word("TICK"):
            self._tick_at = parser.token.position
            self._tick = _tick_policy(parser)
        parser.expect_word("AS")
        return RegisterClause(stream[1:-1], stream)

    def _form_operator(self, parser: Parser) -> None:
        if not parser.at_word(*STREAM_OPERATORS):
            return
        word = parser.advance()
        operator = cast("StreamOperator", word.text.upper())
        if self._operator not in (None, operator):
            parser.fail(f"REGISTER says {self._operator} already", word.position)
        self._operator = operator

    def _check_policies(self, parser: Parser) -> None:
        policy, position = self._policy, self._report_at
        if any(isinstance(each.window, ElementWindow) for each in self._windows):
            if self._tick_at is not None and self._tick != "tuple":
                parser.fail("windows of ELEMENTS are moved by elements: TICK TUPLE", self._tick_at)
            self._tick = "tuple"
            if policy.period is not None:
                parser.fail("PERIODIC needs time, and ELEMENTS are without", position)
        if self._tick == "time" and not policy.timing and not policy.content_change:
            parser.fail(
                "NON-EMPTY CONTENT alone holds at every millisecond: "
                "say WINDOW CLOSE, CONTENT CHANGE or PERIODIC too, or TICK BATCH or TUPLE",
                position,
            )
        windows = [each.window for each in self._windows]
        if policy.period is not None and not report_instants(policy, windows).periods:
            parser.fail("no window ever closes at a multiple of the period", position)

    def _from_window(self, parser: Parser, start: int, is_named: bool) -> bool:
        if not parser.take_word("WINDOW"):
            parser.take_word("GRAPH")
            return False
        if not is_named:
            parser.fail("a window is NAMED: FROM NAMED WINDOW", start)
        position = parser.token.position
        called = _graph_of(parser.iri())
        if any(called == each.name for each in self._windows):
            parser.fail("there is a window of this name already", position)
        window = _window(parser) if parser.at("[") else None
        parser.take_word("ON")
        parser.take_word("STREAM")
        if parser.token.kind == "variable":
            parser.fail("a stream is named by an IRI, not by a variable")
        stream = parser.iri()
        if window is None:
            window = _window(parser)
        self._windows.append(StreamClause(stream, window, True, start, called))
        return True

    def _window_clause(self, parser: Parser, before: Pattern) -> Pattern:
        if self._inside is not None:
            parser.fail("WINDOW cannot stand inside WINDOW", parser.ahead(-1).position)
        if parser.graph != DEFAULT_GRAPH:
            parser.fail("WINDOW cannot stand inside GRAPH", parser.ahead(-1).position)
        position, name = parser.token.position, None
        if parser.token.kind == "variable":
            name = parser.variable()
            graphs = [each.graph for each in self._windows]
        else:
            graphs = [_graph_of(parser.iri())]
            if graphs[0] not in [each.name for each in self._windows]:
                windows = ", ".join(f"<{each.graph[len(_MARK) + 1 :]}" for each in self._windows)
                parser.fail(f"FROM NAMED WINDOW names no such window, but {windows}", position)
        start = parser.mark()
        if not parser.at("{"):
            parser.expected("'{'")
        result: Pattern = NOTHING
        for graph in graphs:
            # The content is parsed once for each window.
            parser.rewind(start)
            self._inside = next(each for each in self._windows if each.graph == graph)
            with parser.inside(graph):
                pattern = parser.group_graph_pattern()
            self._inside = None
            if name is not None:
                window = Term(f"<{graph[len(_MARK) + 1 :]}")
                pattern = Join(Values((name,), ((window,),)), pattern)
            result = pattern if result is NOTHING else Union(result, pattern)
        return join(before, result)

    def _graph_clause(self, parser: Parser, before: Pattern) -> Pattern:
        """Parse GRAPH; in a window it ranges over named graphs of elements."""
        if self._inside is None:
            return parser.graph_clause(before)
        graph = parser.variable_or_iri()
        hidden = self._graph_in(self._inside)
        with parser.inside(hidden):
            pattern = grounded(parser.group_graph_pattern(), hidden, parser.fresh)
        return join(before, named(pattern, hidden, graph, parser.fresh))

    def _graph_in(self, window: StreamClause) -> Variable:
        called = Term(window.graph.replace(_MARK, _GRAPHS_MARK, 1))
        graphs = [each.graph for each in self._in_graphs]
        if called not in graphs:
            self._in_graphs.append(replace(window, name=called, in_graphs=True))
            graphs.append(called)
        self._graph_patterns += 1
        return graph_variable(len(self._windows) + graphs.index(called), self._graph_patterns)

    def _begin_at(self, parser: Parser, pattern: Pattern, position: int) -> Pattern:
        if parser.at_word("WITH") and parser.ahead().text.upper() == "DURATION":
            parser.fail("WITH DURATION: elements have a timestamp here, and no duration")
        if not parser.take_word("BEGIN"):
            return pattern
        parser.expect_word("AT")
        if not isinstance(pattern, BGP) or len(pattern.patterns) != 1 or not self._inside:
            parser.fail("BEGIN AT stands behind one triple pattern in a WINDOW", position)
        if is_variable(parser.graph):
            parser.fail("BEGIN AT cannot stand inside GRAPH", position)
        bound = [Variable(each) for each in pattern.patterns[0][:3] if is_variable(each)]
        if not bound:
            parser.fail("BEGIN AT needs a variable in its triple pattern", position)
        name = parser.variable()
        if name in bound:
            parser.fail(f"{name} has a value already", parser.ahead(-1).position)
        return Extend(pattern, name, Call(TIMESTAMP, (VariableRef(bound[0]),)))

    def _template(self, parser: Parser, emit: Emit) -> None:
        graph: TermOrVariable | None = None

        def emit_in_graph(
            subject: TermOrVariable, verb: PathExpression | TermOrVariable, object_: TermOrVariable
        ) -> None:
            emit(subject, verb, object_)
            self._graphs.append(graph)

        while not parser.at("}"):
            if parser.take_word("GRAPH"):
                graph = _template_graph(parser)
                parser.expect("{")
                parser.triples(emit_in_graph)
                parser.expect("}")
                parser.take(".")
                graph = None
            else:
                before = parser.token
                parser.triples(emit_in_graph)
                if parser.token is before:
                    parser.expected("a triple, GRAPH or '}'")


def _graph_of(window: Term) -> Term:
    return Term(f"<{_MARK}{window[1:]}")


def _template_graph(parser: Parser) -> TermOrVariable:
    if parser.token.kind == "variable":
        return parser.variable()
    if parser.token.kind == "blank":
        return Term(parser.advance().text)
    return parser.iri()
