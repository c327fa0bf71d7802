"""RSP-QL queries that run: when they answer, and what they stream.

Window close and periodic with TICK TIME have instants as C-SPARQL has. All others are decided by
elements: with TICK TIME where content enters or leaves a window; with TICK BATCH once for each
timestamp; with TICK TUPLE at each element: for windows that closed before it, and for those that
it closes or changes. Windows of the latter two are not shared, because they move to instants that
other queries have left.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from annotations.terms import (
    Term,
    TermOrVariable,
    TriplePattern,
    Variable,
    is_blank_node,
    is_variable,
)
from tpf_client.sparql.algebra import Row
from tpf_server.continuous.csparql.csparql_query import PeriodicAnswer, answer_of
from tpf_server.continuous.csparql.periodic_query import PeriodicQuery
from tpf_server.continuous.engine.elements.elements import may_begin
from tpf_server.continuous.engine.running_query import EmissionColumns, result_variables
from tpf_server.continuous.engine.windows.specification import NEVER
from tpf_server.continuous.rspql.rspql_query import (
    ElementWindow,
    ReportInstants,
    RspqlQuery,
    SlidingWindow,
    StreamOperator,
    report_instants,
)

# From an answer to what is streamed of it: RStream, IStream, DStream; also triples in graphs.

_QUAD = (Variable("?s"), Variable("?p"), Variable("?o"), Variable("?g"))


def rows_to_stream(
    operator: StreamOperator, before: Counter[Row], rows: Sequence[Row]
) -> tuple[list[Row], Counter[Row]]:
    """Give what an answer has more (ISTREAM) or less (DSTREAM) than before, and its bag."""
    now = Counter(rows)
    if operator == "DSTREAM":
        return list((before - now).elements()), now
    left = +before
    result = []
    for row in rows:
        if left[row] > 0:
            left[row] -= 1
        else:
            result.append(row)
    return result, now


def changed(
    operator: StreamOperator, before: Counter[Row], changes: Iterable[tuple[Row, int]]
) -> list[Row]:
    """The same from a delta; `before` becomes the answer."""
    wanted = 1 if operator == "ISTREAM" else -1
    result: list[Row] = []
    for row, count in changes:
        total = before[row] + count
        if total:
            before[row] = total
        else:
            del before[row]
        result += [row] * (wanted * count)
    return result


def quads_of(
    name: str,
    at: int,
    template: Sequence[TriplePattern],
    graphs: Sequence[TermOrVariable | None],
    variables: Sequence[Variable],
    rows: Sequence[Row],
) -> PeriodicAnswer:
    """Make the answer of CONSTRUCT with GRAPH in its template."""
    values = {variable: index for index, variable in enumerate(variables)}
    blanks: dict[str, int] = {}
    result: dict[Row, None] = {}
    for number, row in enumerate(rows):

        def term(text: str | None, row: Row = row, number: int = number) -> Term | None:
            if text is None:
                return None
            if is_variable(text):
                index = values.get(Variable(text))
                return None if index is None else row[index]
            if is_blank_node(text):
                return Term(f"_:c{at}x{number}b{blanks.setdefault(text, len(blanks))}")
            return Term(text)

        for triple, graph in zip(template, graphs, strict=True):
            s, p, o = (term(each) for each in triple)
            where = term(graph)
            if (
                s is not None
                and p is not None
                and o is not None
                and may_begin(s, p)
                and (graph is None or (where is not None and may_begin(where, p)))
            ):
                result[s, p, o, where] = None
    return PeriodicAnswer(name, at, "CONSTRUCT", _QUAD, tuple(result))


# Which elements are in the windows of one query, as far as report policies ask for it.

_SPARE: Final = 256

WindowContent: TypeAlias = tuple[object, ...] | None
"""Equal for equal contents of a window; ``None`` where it is empty."""


class SlidingMarks:
    """Timestamps of the elements of a window over time."""

    def __init__(self, window: SlidingWindow) -> None:
        self.window = window
        self._marks: list[tuple[int, int]] = []
        self._came = 0

    def add(self, at: int) -> None:
        """Add an element."""
        self._came += 1
        insort(self._marks, (at, self._came))

    def closes(self, at: int) -> bool:
        """True where a window closes at an instant."""
        return self.window.closed(at) == at

    def content(self, at: int) -> WindowContent:
        """The content at an instant."""
        lower, upper = self.window.bounds(at)
        begin = bisect_right(self._marks, lower, key=_timestamp)
        end = bisect_right(self._marks, upper, key=_timestamp)
        if begin >= end:
            return None
        # Marks are only added, so that as many between the same two are the same.
        return self._marks[begin], self._marks[end - 1], end - begin

    def leaving(self, at: int) -> int | None:
        """The first instant from `at` on at which an element leaves."""
        index = bisect_left(self._marks, at, key=lambda mark: self.window.leaves(mark[0]))
        return None if index == len(self._marks) else self.window.leaves(self._marks[index][0])

    def forget(self, at: int) -> None:
        """Forget elements that no later window has."""
        if len(self._marks) > _SPARE:
            lower, _ = self.window.bounds(at)
            gone = bisect_right(self._marks, lower, key=_timestamp)
            if 2 * gone > len(self._marks):
                del self._marks[:gone]


class ElementMarks:
    """Count the elements of a window that counts them.

    Attributes:
        closed: the last element closed it, and nobody has looked since.
    """

    def __init__(self, window: ElementWindow) -> None:
        self.window = window
        self.closed = False
        self._came = 0

    def add(self, at: int) -> None:  # noqa: ARG002
        """Add an element."""
        self._came += 1
        self.closed = self._came % self.window.step == 0

    def closes(self, at: int) -> bool:  # noqa: ARG002
        """True where it is closed."""
        return self.closed

    def content(self, at: int) -> WindowContent:  # noqa: ARG002
        """The content."""
        return (self._came,) if self._came else None

    def leaving(self, at: int) -> int | None:  # noqa: ARG002
        """Nothing leaves by itself."""
        return None

    def forget(self, at: int) -> None:  # noqa: ARG002
        """Note that it was looked at."""
        self.closed = False


def _timestamp(mark: tuple[int, int]) -> int:
    return mark[0]


class ReportingQuery(PeriodicQuery):
    """A query with report and tick policies."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        query = self.query
        assert isinstance(query, RspqlQuery)
        self._said = query
        self._report = query.report
        windows = [clause.window for clause in query.streams]
        self._reports: ReportInstants = report_instants(query.report, windows)
        self._marks: dict[Term, SlidingMarks | ElementMarks] = {}
        # Of windows of both kinds it matters which of them closes.
        counted = any(isinstance(each, ElementWindow) for each in windows)
        for clause in query.streams:
            if clause.in_graphs:
                continue  # the same elements as in the window itself
            if isinstance(clause.window, ElementWindow):
                self._marks[clause.graph] = ElementMarks(clause.window)
            elif isinstance(clause.window, SlidingWindow) and (query.report.content or counted):
                self._marks[clause.graph] = SlidingMarks(clause.window)
        self._by_time = query.tick == "time"
        self.widens = False
        self.told = not self._by_time or not query.report.timing
        self.counts = self.by_elements = query.tick == "tuple"
        self.timed = not self.counts
        self.follows = bool(self._marks) or self.told
        self._planned: list[int] = []
        self._begun: int | None = None
        self._looked = NEVER
        self._before: Counter[Row] = Counter()
        self._asked = (-1, -1)
        self._contents: dict[Term, WindowContent] = dict.fromkeys(self._marks)

    # ---------------------------------------------------------------------------- instants

    def passed(self, at: int) -> int | None:
        """See `PeriodicQuery.passed`: what has closed before an element, looked at by tuples."""
        if self._begun is None or at < self._begun:
            self._begun = at
        if not self.counts or not self._report.timing:
            return None
        last = self._reports.last(max(at, self._looked) - 1)
        return last if last is not None and last >= max(self._looked, self._begun) else None

    def coming(self, stream: Term, at: int) -> bool:  # noqa: ARG002
        """See `PeriodicQuery.coming`: what has closed before an element, looked at in batches."""
        if self._said.tick != "batch" or not self._report.timing:
            return False
        last = self._reports.last(at)
        begun = at if self._begun is None else self._begun
        return last is not None and last >= begun and self._plan(last)

    def came(self, stream: Term, at: int) -> bool:
        """See `PeriodicQuery.came`: what is in windows now, or will be."""
        here = [each for each in self.query.streams if each.stream == stream]
        for each in here:
            if each.graph in self._marks:
                self._marks[each.graph].add(at)
        if self.counts:
            self._looked = max(self._looked, at)
        if self.counts or self._report.timing:
            return False
        result = [self._plan(at)] if not self._by_time else []
        result += [
            self._plan(at + each.window.past)
            for each in here
            if self._by_time and isinstance(each.window, SlidingWindow)
        ]
        return any(result)

    def _plan(self, at: int) -> bool:
        index = bisect_left(self._planned, at)
        if index == len(self._planned) or self._planned[index] != at:
            self._planned.insert(index, at)
        return True

    def wanted(self, done: int) -> int | None:
        """See `PeriodicQuery.wanted`."""
        if self._report.timing:
            # What was closed is looked at once, whatever others have seen meanwhile.
            index = bisect_left(self._planned, self._looked + 1)
            return self._planned[index] if index < len(self._planned) else None
        result = [max(self._planned[0], done + 1)] if self._planned else []
        if self._by_time:
            leaving = (each.leaving(done + 1) for each in self._marks.values())
            result += [at for at in leaving if at is not None]
        return min(result, default=None)

    def due_first(self, at: int) -> int | None:
        """See `PeriodicQuery.due_first`."""
        return self.wanted(at - 1) if self.told else super().due_first(at)

    def due_after(self, at: int) -> int | None:
        """See `PeriodicQuery.due_after`."""
        if not self.told:
            return super().due_after(at)
        del self._planned[: bisect_left(self._planned, at + 1)]
        self._looked = max(self._looked, at)
        return self.wanted(at)

    def due_at_end(self, at: int) -> int:
        """See `PeriodicQuery.due_at_end`."""
        return at if self.told else super().due_at_end(at)

    # ----------------------------------------------------------------------------- answers

    def answer(self, at: int) -> PeriodicAnswer | None:
        """See `PeriodicQuery.answer`."""
        instant = max(at, self._looked) if self.counts else at
        if not self._holds(instant):
            return None
        if not self.say_now(instant):
            return None
        operator = self._said.operator
        if operator == "RSTREAM":
            return self._made(instant, *self._solutions(instant))
        made = self._made(instant, *self._changes(instant, operator))
        # What came or went need not make a triple.
        return made if made.rows else None

    def _solutions(self, instant: int) -> tuple[Sequence[Variable], Sequence[Row]]:
        variables, rows = self.evaluation.solutions(instant, self.question)
        if self.query.query.form == "ASK":
            rows = ((),) if rows else ()
        return variables, rows

    def _changes(
        self, instant: int, operator: StreamOperator
    ) -> tuple[Sequence[Variable], Sequence[Row]]:
        """The delta of the answer that the operator streams."""
        told = None
        if self.query.query.form != "ASK":
            told = self.evaluation.changes(instant, self._asked)
        if told is None:
            variables, rows = self._solutions(instant)
            shown, self._before = rows_to_stream(operator, self._before, rows)
        else:
            variables, changes = told
            shown = changed(operator, self._before, changes)
        self._asked = self.evaluation.asked
        return variables, shown

    def _made(
        self, instant: int, variables: Sequence[Variable], rows: Sequence[Row]
    ) -> PeriodicAnswer:
        query = self.question.query
        if any(self._said.graphs):
            return quads_of(self.name, instant, query.template, self._said.graphs, variables, rows)
        return answer_of(self.name, instant, query, variables, rows)

    def arrived(self) -> bool:
        """See `PeriodicQuery.arrived`: time alone says when sliding windows close."""
        closed = any(isinstance(m, ElementMarks) and m.closed for m in self._marks.values())
        return closed or not self._report.timing

    def _holds(self, instant: int) -> bool:
        """True where all strategies about windows hold for one of them."""
        if not self._marks:
            return True
        report = self._report
        contents = {name: marks.content(instant) for name, marks in self._marks.items()}
        result = any(
            (not report.window_close or marks.closes(instant))
            and (not report.content_change or contents[name] != self._contents[name])
            and (not report.non_empty or contents[name] is not None)
            for name, marks in self._marks.items()
        )
        for marks in self._marks.values():
            marks.forget(instant)
        if result:
            self._contents = contents
        return result

    @property
    def columns(self) -> EmissionColumns:
        """See `PeriodicQuery.columns`."""
        variables = result_variables(self.query.query, graphs=any(self._said.graphs))
        return EmissionColumns(variables, removes=self._said.operator == "DSTREAM")

    def explain(self) -> dict[str, Any]:
        """As `PeriodicQuery.explain`, with the policies."""
        return {
            **super().explain(),
            "operator": self._said.operator,
            "report": str(self._report),
            "tick": self._said.tick,
        }
