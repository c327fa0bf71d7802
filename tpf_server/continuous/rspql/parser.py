"""RSP-QL: SPARQL 1.1 with named windows over streams.

The clauses of papers 005 and 006, and what implementations write in their places:

- ``REGISTER ISTREAM|DSTREAM|RSTREAM <output> AS`` before the query, or ``REGISTER STREAM <output>
  AS`` and the operator behind SELECT, CONSTRUCT or ASK; without any it is RSTREAM. REGISTER may be
  left out. The prologue may stand before and after it, with full stops behind its declarations.
- ``FROM NAMED WINDOW <window> ON [STREAM] <stream> [window]``, or the window before ON, which some
  leave out;
  ``FROM [NAMED] GRAPH <graph>`` is ``FROM [NAMED] <graph>``.
- ``WINDOW <window> { … }`` where ``GRAPH`` may stand; ``WINDOW ?w { … }`` is a union over them all.
- ``GRAPH`` inside ``WINDOW``: the named graphs that elements are; what stands outside of ``GRAPH``
  sees all triples of the window.
- ``{ triple } BEGIN AT ?t`` binds the timestamp of the element (milliseconds since 1970).
- ``GRAPH`` in the template of CONSTRUCT; names of the SELECT clause in GROUP BY and HAVING.

What the papers leave to engines stands behind the output, where it is needed: ``REPORT strategy,
…`` and ``TICK TIME|BATCH|TUPLE``; and ``STARTING AT "…"`` in a window.
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
    TriplePattern,
    Variable,
    is_variable,
)
from tpf_client.sparql.algebra import (
    BGP,
    EMPTY_GROUP,
    NOTHING,
    Call,
    Extend,
    Filter,
    Join,
    PathExpression,
    Pattern,
    Union,
    Values,
    VariableRef,
)
from tpf_client.sparql.rewrite.graph import grounded
from tpf_client.sparql.rewrite.visitor import join, renamed
from tpf_client.sparql.scopes import mentioned
from tpf_server.continuous.csparql.csparql_query import (
    RegisterClause,
    SteppedWindow,
    StreamClause,
    graph_variable,
)
from tpf_server.continuous.csparql.parser import TIMESTAMP
from tpf_server.continuous.engine.elements.elements import milliseconds
from tpf_server.continuous.engine.errors import (
    as_continuous_errors,
)
from tpf_server.continuous.engine.select_names import SelectNames
from tpf_server.continuous.engine.semantics import BASE
from tpf_server.continuous.engine.static.service_clauses import with_graphs
from tpf_server.continuous.engine.windows.specification import nanoseconds_of
from tpf_server.continuous.rspql.rspql_query import (
    STREAM_OPERATORS,
    TICKS,
    WINDOW_CLOSE,
    ElementWindow,
    ReportPolicy,
    RspqlQuery,
    SlidingWindow,
    StreamOperator,
    TickPolicy,
    report_instants,
)

# The clauses of RSP-QL that SPARQL has not: windows, durations, report policies and ticks.

_ISO: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{1,3})\d*)?S)?)?",
    re.IGNORECASE,
)
_ISO_UNITS: Final = (86_400_000, 3_600_000, 60_000, 1000)


class ClauseParser(SelectNames):
    """Reads these clauses."""

    # ----------------------------------------------------------------------------- windows

    def window(self) -> SteppedWindow:
        """``[RANGE … STEP …]``, ``[FROM NOW-… TO NOW-… STEP …]`` or ``[ELEMENTS … STEP …]``."""
        if not self.at("["):
            self.expected("a window in square brackets")
        self.advance()
        place = self.token.position
        if self.take_word("ELEMENTS"):
            result: SteppedWindow = self._counted()
        else:
            if self.take_word("RANGE"):
                width, past = self._positive("RANGE"), 0
            elif self.take_word("FROM"):
                begin = self._before_now()
                self.expect_word("TO")
                past = self._before_now()
                width = begin - past
                if width < 1:
                    self.fail("a window begins before it ends", place)
            else:
                self.expected("RANGE, FROM or ELEMENTS")
            step = self._positive("STEP") if self._stepping() else width
            result = SlidingWindow(width, step, self._beginning(), past)
        if not self.at("]"):
            self.expected("']'")
        self.advance()
        return result

    def _stepping(self) -> bool:
        self.take(",")
        return self.take_word("STEP") or self.take_word("SLIDE")

    def _positive(self, what: str) -> int:
        place = self.token.position
        found = self.duration()
        if not found:
            self.fail(f"{what} takes at least one millisecond", place)
        return found

    def _counted(self) -> ElementWindow:
        count = self._number()
        return ElementWindow(count, self._number() if self._stepping() else 1)

    def _number(self) -> int:
        place = self.token.position
        number = self.whole_number("a number of elements")
        if not number:
            self.fail("expected a number of elements, found '0'", place)
        return number

    def _before_now(self) -> int:
        self.expect_word("NOW")
        return self.duration() if self.take("-") else 0

    def _beginning(self) -> int:
        if not self.take_word("STARTING"):
            return 0
        self.expect_word("AT")
        place = self.token.position
        if self.token.kind == "integer":
            return self.whole_number()
        text = self.string()
        if self.take("^^"):
            self.iri()
        try:
            return milliseconds(parse_instant(text))
        except InstantError:
            self.fail(f"{text!r} is no instant with a time zone", place)

    def duration(self) -> int:
        """``PT10S``, ``10 s``, ``10s``, or a number of milliseconds; in milliseconds."""
        begin = self.token.position
        if self.token.kind == "integer":
            number = self.whole_number("a duration")
            unit = self.token.text if self.token.kind == "word" else ""
            length = nanoseconds_of(unit)
            if length is None:
                if self.at_word("STEP", "SLIDE", "TO", "STARTING", "TICK", "AS") or not unit:
                    return number
                self.expected("a unit of time: ms, s, m, h or d")
            self.advance()
            return number * length // 1_000_000
        match = _ISO.match(self.text, begin)
        if match is None or self.token.kind not in ("word", "name"):
            self.expected("a duration such as PT10S or 10s")
        # Its words are those that begin within it.
        while self.token.position < match.end() and self.token.kind != "end":
            if self.token.end > match.end():
                self.fail("expected a duration of days, hours, minutes and seconds", begin)
            self.advance()
        if not any(match.groups()):
            self.fail(f"'{self.text[begin : match.end()]}' is a duration of nothing", begin)
        parts = zip(match.groups()[:4], _ISO_UNITS, strict=True)
        whole = sum(int(number) * unit for number, unit in parts if number)
        return whole + int((match[5] or "0").ljust(3, "0"))

    # ---------------------------------------------------------------------------- policies

    def report(self) -> ReportPolicy:
        """Strategies, with commas or AND between them; all are to hold."""
        policy = ReportPolicy()
        while True:
            place = self.token.position
            if self.take_word("WINDOW"):
                self.expect_word("CLOSE")
                new = replace(policy, window_close=True)
            elif self.take_word("CONTENT"):
                self.expect_word("CHANGE")
                new = replace(policy, content_change=True)
            elif self.take_word("NON"):
                self.take("-")
                self.expect_word("EMPTY")
                self.expect_word("CONTENT")
                new = replace(policy, non_empty=True)
            elif self.take_word("PERIODIC"):
                if policy.period is not None:
                    self.fail("PERIODIC stands here twice", place)
                new = replace(policy, period=self._positive("PERIODIC"))
            else:
                self.expected("WINDOW CLOSE, CONTENT CHANGE, NON-EMPTY CONTENT or PERIODIC")
            if new == policy:
                self.fail("this strategy stands here twice", place)
            policy = new
            if not self.take(",") and not self.take_word("AND"):
                return policy

    def tick(self) -> TickPolicy:
        """The word behind TICK."""
        found = self.token.text.lower()
        if self.token.kind != "word" or found not in TICKS:
            self.expected("TIME, BATCH or TUPLE")
        self.advance()
        return found


# GRAPH inside WINDOW: patterns over the named graphs that elements are.


def named(
    pattern: Pattern, hidden: Variable, graph: TermOrVariable, fresh: Callable[[], Variable]
) -> Pattern:
    """``GRAPH graph { … }``, where it is known what stands inside.

    Args:
        pattern: that; its triple patterns lie in a graph called `hidden`.
        hidden: a variable that is bound to the names of the graphs of a window.
        graph: what the query calls them.
        fresh: makes hidden variables.
    """
    if not is_variable(graph):
        return Join(Values((hidden,), ((Term(graph),),)), pattern)
    name = Variable(graph)
    if name not in mentioned(pattern):
        return Extend(pattern, name, VariableRef(hidden))
    # Inside it is a variable like any other, compared with the graph afterwards.
    inner = fresh()
    pattern = Extend(renamed(pattern, name, inner), name, VariableRef(hidden))
    unbound = Call("!", (Call("BOUND", (VariableRef(inner),)),))
    equal = Call("SAMETERM", (VariableRef(inner), VariableRef(name)))
    return Filter(pattern, Call("||", (unbound, equal)))


_MARK = "urn:x-rspql:window:"
"""What the graphs of windows begin with, so that no static graph is called like them."""
_GRAPHS_MARK = "urn:x-rspql:graphs:"
"""The same of windows of named graphs."""


@lru_cache(maxsize=512)
def parse(
    text: str, base: str = BASE, report: ReportPolicy = WINDOW_CLOSE, tick: TickPolicy = "time"
) -> RspqlQuery:
    """Read a query.

    Args:
        text: RSP-QL.
        base: what relative IRIs are relative to, where the text has no BASE.
        report: where it says none.
        tick: where it says none.

    Raises:
        ContinuousSyntaxError: the text is no query, or its clauses contradict each other; it knows
            line and column.
        UnsupportedContinuousQueryError: the algebra cannot say it.
    """
    with as_continuous_errors():
        return RspqlParser(text, base, report, tick).registered_query()


def parse_report(text: str) -> ReportPolicy:
    """Read strategies alone: ``window close, non-empty content``.

    Raises:
        ContinuousSyntaxError: they are none.
    """
    with as_continuous_errors():
        parser = ClauseParser(text)
        found = parser.report()
        if parser.token.kind != "end":
            parser.expected("a comma, or the end of the strategies")
    return found


class RspqlParser(ClauseParser):
    """Reads RSP-QL."""

    def __init__(self, text: str, base: str | None, report: ReportPolicy, tick: TickPolicy) -> None:
        super().__init__(text, base)
        self._policy = report
        self._tick = tick
        self._tick_said = False
        self._operator: StreamOperator | None = None
        self._windows: list[StreamClause] = []
        self._in_window = False
        self._in_graphs: list[StreamClause] = []
        self._window: StreamClause
        self._graph_patterns = 0
        self._graphs: list[TermOrVariable | None] = []

    # ----------------------------------------------------------------------- registration

    def registered_query(self) -> RspqlQuery:
        """The whole text."""
        self.prologue()
        place = self.token.position
        registration = self._registration()
        self.prologue()
        self._form_operator()
        query, services = with_graphs(self.query())
        if not self._windows:
            self.fail("FROM NAMED WINDOW is missing: nothing says when to evaluate this", place)
        self._check_policies(place)
        wanted = frozenset(Variable(each) for each in self._graphs if each and is_variable(each))
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
            self.text,
            services=services,
            wanted=wanted,
            operator=self._operator or "RSTREAM",
            report=self._policy,
            tick=self._tick,
            graphs=tuple(self._graphs) if any(self._graphs) else (),
        )

    def prologue(self) -> None:
        """BASE and PREFIX declarations; full stops may stand between them."""
        super().prologue()
        while self.take("."):
            super().prologue()

    def _registration(self) -> RegisterClause | None:
        if not self.take_word("REGISTER"):
            return None
        if not self.at_word("STREAM", *STREAM_OPERATORS):
            self.expected("STREAM, ISTREAM, DSTREAM or RSTREAM")
        word = self.advance().text.upper()
        if word != "STREAM":
            self._operator = cast("StreamOperator", word)
        if not self.at_iri():
            self.expected("the IRI of the output stream")
        stream = self.iri()
        if self.take_word("UNDER"):
            self.fail("UNDER ENTAILMENT REGIME: nothing is entailed here", self.ahead(-1).position)
        if self.take_word("REPORT"):
            self._policy = self.report()
        if self.take_word("TICK"):
            self._tick = self.tick()
            self._tick_said = True
        self.expect_word("AS")
        return RegisterClause("stream", stream[1:-1], stream)

    def _form_operator(self) -> None:
        """``SELECT ISTREAM``: the operator may stand behind the form."""
        word = self.ahead()
        if word.kind != "word" or word.text.upper() not in STREAM_OPERATORS:
            return
        operator = cast("StreamOperator", word.text.upper())
        if self._operator not in (None, operator):
            self.fail(f"REGISTER says {self._operator} already", word.position)
        self._operator = operator
        del self._tokens[self._place + 1]

    def _check_policies(self, place: int) -> None:
        policy = self._policy
        if any(isinstance(each.window, ElementWindow) for each in self._windows):
            if self._tick_said and self._tick != "tuple":
                self.fail("windows of ELEMENTS are moved by elements: TICK TUPLE", place)
            self._tick = "tuple"
            if policy.period is not None:
                self.fail("PERIODIC needs time, and ELEMENTS are without", place)
        if self._tick == "time" and not policy.timing and not policy.content_change:
            self.fail(
                "NON-EMPTY CONTENT alone holds at every millisecond: "
                "say WINDOW CLOSE, CONTENT CHANGE or PERIODIC too, or TICK BATCH or TUPLE",
                place,
            )
        windows = [each.window for each in self._windows]
        ahead = policy.timing and self._tick != "tuple"
        if ahead and not report_instants(policy, windows).periods:
            self.fail("no window ever closes at a multiple of the period", place)

    # ---------------------------------------------------------------------------- dataset

    def _from_stream(self, start: int, is_named: bool) -> bool:
        if not self.take_word("WINDOW"):
            self.take_word("GRAPH")
            return False
        if not is_named:
            self.fail("a window is NAMED: FROM NAMED WINDOW", start)
        place = self.token.position
        called = self._graph_of(self.iri())
        if any(called == each.name for each in self._windows):
            self.fail("there is a window of this name already", place)
        window = self.window() if self.at("[") else None
        self.take_word("ON")
        self.take_word("STREAM")
        if self.token.kind == "variable":
            self.fail("a stream is named by an IRI, not by a variable")
        stream = self.iri()
        if window is None:
            window = self.window()
        self._windows.append(StreamClause(stream, window, True, start, called))
        return True

    def _graph_of(self, window: Term) -> Term:
        return Term(f"<{_MARK}{window[1:]}")

    # ---------------------------------------------------------------------------- patterns

    def element(self, before: Pattern) -> Pattern:
        """One element of a group: WINDOW, a group with BEGIN AT, or what SPARQL has."""
        if self._in_window and self.at_word("WINDOW"):
            self.fail("WINDOW cannot stand inside WINDOW")
        if self.at_word("WINDOW"):
            self.advance()
            return join(before, self._window_pattern())
        if not self.at("{"):
            return super().element(before)
        place = self.token.position
        pattern = super().element(EMPTY_GROUP)
        if self.at_word("WITH") and self.ahead().text.upper() == "DURATION":
            self.fail("WITH DURATION: elements have a timestamp here, and no duration")
        if self.take_word("BEGIN"):
            self.expect_word("AT")
            pattern = self._stamped(pattern, place)
        return join(before, pattern)

    def _window_pattern(self) -> Pattern:
        if self._graph != DEFAULT_GRAPH:
            self.fail("WINDOW cannot stand inside GRAPH", self.ahead(-1).position)
        place, name = self.token.position, None
        if self.token.kind == "variable":
            name = self.variable()
            graphs = [each.graph for each in self._windows]
        else:
            graphs = [self._graph_of(self.iri())]
            if graphs[0] not in [each.name for each in self._windows]:
                known = ", ".join(f"<{each.graph[len(_MARK) + 1 :]}" for each in self._windows)
                self.fail(f"FROM NAMED WINDOW names no such window, but {known}", place)
        start = self._place, self._block, self._blocks_opened
        if not self.at("{"):
            self.expected("'{'")
        result: Pattern = NOTHING
        for graph in graphs:
            # What stands inside is said of each window anew.
            self._place, self._block, self._blocks_opened = start
            self._in_window = True
            self._window = next(each for each in self._windows if each.graph == graph)
            with self._inside(graph):
                pattern = self.group_graph_pattern()
            self._in_window = False
            if name is not None:
                window = Term(f"<{graph[len(_MARK) + 1 :]}")
                pattern = Join(Values((name,), ((window,),)), pattern)
            result = pattern if result is NOTHING else Union(result, pattern)
        return result

    def _graph_pattern(self) -> Pattern:
        """GRAPH; in a window it is of the named graphs of that."""
        if not self._in_window:
            return super()._graph_pattern()
        graph = self.variable() if self.token.kind == "variable" else self.iri()
        hidden = self._graph_in_window()
        with self._inside(hidden):
            pattern = grounded(self.group_graph_pattern(), hidden, self.fresh)
        return named(pattern, hidden, graph, self.fresh)

    def _graph_in_window(self) -> Variable:
        """What stands for the named graphs of the window that is read."""
        window = self._window
        called = Term(window.graph.replace(_MARK, _GRAPHS_MARK, 1))
        known = [each.graph for each in self._in_graphs]
        if called not in known:
            self._in_graphs.append(replace(window, name=called, in_graphs=True))
            known.append(called)
        self._graph_patterns += 1
        return graph_variable(len(self._windows) + known.index(called), self._graph_patterns)

    def _stamped(self, pattern: Pattern, place: int) -> Pattern:
        if not isinstance(pattern, BGP) or len(pattern.patterns) != 1 or not self._in_window:
            self.fail("BEGIN AT stands behind one triple pattern in a WINDOW", place)
        if is_variable(self._graph):
            self.fail("BEGIN AT cannot stand inside GRAPH", place)
        bound = [Variable(each) for each in pattern.patterns[0][:3] if is_variable(each)]
        if not bound:
            self.fail("BEGIN AT needs a variable in its triple pattern", place)
        name = self.variable()
        if name in bound:
            self.fail(f"{name} has a value already", self.ahead(-1).position)
        return Extend(pattern, name, Call(TIMESTAMP, (VariableRef(bound[0]),)))

    # ---------------------------------------------------------------------------- template

    def _template(self) -> tuple[TriplePattern, ...]:
        triples: list[TriplePattern] = []
        graph: TermOrVariable | None = None

        def emit(
            subject: TermOrVariable, verb: PathExpression | TermOrVariable, object_: TermOrVariable
        ) -> None:
            assert isinstance(verb, str)
            triples.append(TriplePattern(subject, verb, object_))
            self._graphs.append(graph)

        self.expect("{")
        self._in_template = True
        while not self.at("}"):
            if self.take_word("GRAPH"):
                graph = self._template_graph()
                self.expect("{")
                self.triples(emit)
                self.expect("}")
                self.take(".")
                graph = None
            else:
                before = self._place
                self.triples(emit)
                if self._place == before:
                    self.expected("a triple, GRAPH or '}'")
        self._in_template = False
        self.expect("}")
        return tuple(triples)

    def _template_graph(self) -> TermOrVariable:
        if self.token.kind == "variable":
            return self.variable()
        if self.token.kind == "blank":
            return Term(self.advance().text)
        return self.iri()
