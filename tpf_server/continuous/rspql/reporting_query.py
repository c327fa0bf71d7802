"""A query of RSP-QL that runs: when it answers, and what of its answers it streams.

Window close and periodic with the tick of time are known ahead; these instants are due as those of
C-SPARQL are. All others are found as elements come: with the tick of time, where content enters or
leaves a window; with that of batches, once for each timestamp; with that of tuples at each element,
at once: for what has closed before it comes, and for what it closes or changes itself. The windows
of the latter two are those of the query alone, because they are moved to instants that other
queries have left behind.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any

from annotations.terms import Term, Variable
from tpf_client.sparql.algebra import Row
from tpf_server.continuous.csparql.answers import PeriodicAnswer, answer_of
from tpf_server.continuous.csparql.periodic_query import PeriodicQuery
from tpf_server.continuous.engine.result_columns import EmissionColumns, result_variables
from tpf_server.continuous.engine.windows.stream_time import NEVER
from tpf_server.continuous.rspql.instants import ReportInstants, report_instants
from tpf_server.continuous.rspql.reports import StreamOperator
from tpf_server.continuous.rspql.rspql_query import RspqlQuery
from tpf_server.continuous.rspql.streaming import changed, quads_of, rows_to_stream
from tpf_server.continuous.rspql.window_marks import ElementMarks, SlidingMarks, WindowContent
from tpf_server.continuous.rspql.windows import ElementWindow, SlidingWindow


class ReportingQuery(PeriodicQuery):
    """See above; it is made as `PeriodicQuery` is."""

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
        found = [self._plan(at)] if not self._by_time else []
        found += [
            self._plan(at + each.window.past)
            for each in here
            if self._by_time and isinstance(each.window, SlidingWindow)
        ]
        return any(found)

    def _plan(self, at: int) -> bool:
        place = bisect_left(self._planned, at)
        if place == len(self._planned) or self._planned[place] != at:
            self._planned.insert(place, at)
        return True

    def wanted(self, done: int) -> int | None:
        """See `PeriodicQuery.wanted`."""
        if self._report.timing:
            # What was closed is looked at once, whatever others have seen meanwhile.
            place = bisect_left(self._planned, self._looked + 1)
            return self._planned[place] if place < len(self._planned) else None
        found = [max(self._planned[0], done + 1)] if self._planned else []
        if self._by_time:
            leaving = (each.leaving(done + 1) for each in self._marks.values())
            found += [at for at in leaving if at is not None]
        return min(found, default=None)

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
        """What the answer has more, or less, than that of before."""
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
        """Whether the strategies that ask for the windows hold for one of them."""
        if not self._marks:
            return True
        report = self._report
        contents = {name: marks.content(instant) for name, marks in self._marks.items()}
        found = any(
            (not report.window_close or marks.closes(instant))
            and (not report.content_change or contents[name] != self._contents[name])
            and (not report.non_empty or contents[name] is not None)
            for name, marks in self._marks.items()
        )
        for marks in self._marks.values():
            marks.forget(instant)
        if found:
            self._contents = contents
        return found

    @property
    def columns(self) -> EmissionColumns:
        """See `PeriodicQuery.columns`."""
        variables = result_variables(self.query.query, graphs=any(self._said.graphs))
        return EmissionColumns(variables, removes=self._said.operator == "DSTREAM")

    def explain(self) -> dict[str, Any]:
        """What `PeriodicQuery.explain` gives, and the policies."""
        return {
            **super().explain(),
            "operator": self._said.operator,
            "report": str(self._report),
            "tick": self._said.tick,
        }
