"""Give batches of records to all plans of an engine, one row after the other.

Every plan takes a row before its changes are emitted, and these come before the next row. The state
begins with empty windows; at anything but a batch that it can take, the operators get the rows, and
keep them until the windows are empty.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from tpf_client.dataflow.state.ranked_groups import WITH_ROW
from tpf_client.sparql.expressions.inlined import TAG
from tpf_server.continuous.runtime.delivery import Phase
from tpf_server.continuous.runtime.plans.column_expressions import Column
from tpf_server.continuous.runtime.plans.fused_plan import FusedPlan, FusedRows
from tpf_server.continuous.runtime.windows.star_window import StarWindow

PassRows = Callable[[int, int], None]


class _Block:
    """Rows, the number of the first one, and the count of those taken."""

    __slots__ = ("first", "rows", "taken")

    def __init__(self, rows: FusedRows, first: int) -> None:
        self.rows = rows
        self.first = first
        self.taken = 0

    def columns(self) -> Iterable[Column]:
        return chain((self.rows.subjects,), *self.rows.cells.values())


class FusedStream:
    """The rows of windows, for all plans of an engine.

    Attributes:
        active: the rows are here, and not with the operators.
    """

    def __init__(self, plans: Sequence[FusedPlan], phase: Phase) -> None:
        self.active = False
        self.windows = sorted(set().union(*(each.windows for each in plans)), key=_number)
        self._plans = plans
        self._phase = phase
        self._blocks: deque[_Block] = deque()
        # How many rows came, and of each window how many of these are gone.
        self._arrived = 0
        self._gone: dict[StarWindow, int] = {}
        self._at = WITH_ROW

    def room(self, window_rows: int) -> int:
        """Return how many rows may come at least until the windows of a plan hold too much."""
        return min(
            (window_rows - sum(each.held for each in plan.windows)) // len(plan.windows)
            for plan in self._plans
        )

    def run(self, rows: FusedRows, passed: PassRows) -> int:
        """Take rows, one after the other, as far as possible; return how many.

        Args:
            rows: at least one; none is older than the one before it, nor than the engine.
            passed: emits changes; it gets the time and the number of rows since the last call.
        """
        if not self.active and not all(each.is_empty for each in self._plans):
            return 0
        batches, count = self._batches(rows)
        if not count:
            if not self.active:
                for plan in self._plans:
                    plan.forget()
            return 0
        if not self.active:
            self._begin()
        block = _Block(rows, self._arrived)
        self._blocks.append(block)
        done, instant = 0, WITH_ROW
        try:
            while done < count and self.active:
                before = done
                done, instant = self._go_on(batches, (done, instant), count)
                block.taken = done
                self._arrived += done - before
                if done > before:
                    self._at = int(rows.times[done - 1])
                    if instant != WITH_ROW:
                        # What these changed is not shown.
                        passed(self._at, done - before)
                        before = done
                self._at = max(self._at, instant)
                here = [each for each in self._plans if each.reached == (done, instant)]
                changed = [each for each in here if each.changed]
                self._show(changed, arrived=instant == WITH_ROW)
                if done > before or not all(each.apart for each in changed):
                    passed(self._at, done - before)
        except BaseException:
            # Some plans may be ahead: they took rows that do not come any more.
            self.settle()
            raise
        self.trim()
        return done

    def advance(self, at: int, passed: PassRows) -> None:
        """Let time pass to an instant; for `passed` see `run`."""
        waiting = dict.fromkeys(self._plans, self._at)
        while waiting:
            for plan in [each for each in waiting if not each.changed]:
                waiting[plan] = plan.pass_to(at)
            self._at = min(waiting.values())
            changed = [each for each in waiting if each.changed and waiting[each] == self._at]
            if not changed:
                break
            self._show(changed, arrived=False)
            passed(self._at, 0)
            if not self.active:
                return
        self._at = at
        self.trim()

    def _begin(self) -> None:
        self.active = True
        self._arrived = 0
        self._gone = dict.fromkeys(self.windows, 0)

    def _batches(self, rows: FusedRows) -> tuple[list[Any], int]:
        """Return the batch of each plan, and how many first rows all can take."""
        count = self._new_subjects(rows.subjects)
        prepared = []
        for plan in self._plans:
            plan.unfit = False
        for plan in self._plans:
            try:
                columns, fitting = plan.prepared(rows, count)
            except Exception:  # noqa: BLE001 - it is raised again for the row, by an operator
                columns, fitting = [], 0
            plan.unfit = fitting < count
            count = fitting
            prepared.append(columns)
            if not count:
                return [], 0
        plans = zip(self._plans, prepared, strict=True)
        return [plan.batch(columns, count) for plan, columns in plans], count

    def _new_subjects(self, subjects: Column) -> int:
        own = [each.rows.subjects[: each.taken] for each in self._blocks]
        every = np.concatenate([*own, subjects])
        first = np.unique(every, return_index=True)[1]
        if len(first) == len(every):
            return len(subjects)
        new = np.zeros(len(every), np.bool_)
        new[first] = True
        return int(np.flatnonzero(~new)[0]) - (len(every) - len(subjects))

    def _go_on(
        self, batches: Sequence[Any], position: tuple[int, int], count: int
    ) -> tuple[int, int]:
        """Let all plans take rows until the answer of one changes; some may be ahead."""
        for plan, batch in zip(self._plans, batches, strict=True):
            if plan.reached == position:
                plan.go_on(batch, count)
            rows, instant = plan.reached
            # A plan that stops at an instant before a row stops no other before that row.
            count = min(count, rows + (instant != WITH_ROW))
        return min(plan.reached for plan in self._plans)

    def _show(self, changed: Sequence[FusedPlan], *, arrived: bool) -> None:
        self._phase.inserting = arrived
        for plan in changed:
            try:
                plan.show()
            except Exception as error:  # noqa: BLE001 - it ends its queries, and no others
                plan.plan.work.fail(error)
        self._phase.inserting = False

    # ------------------------------------------------------------------------------ windows

    @property
    def makes_terms(self) -> bool:
        """True if a state holds terms that `holders` does not give."""
        return any(plan.makes_terms for plan in self._plans)

    def holders(self) -> list[object]:
        columns = {id(each): each for block in self._blocks for each in block.columns()}
        for plan in self._plans:
            # The operators hold what is shown.
            plan.made.clear()
        return [np.unique(each[each & TAG == 0]).tolist() for each in columns.values()]

    def trim(self) -> None:
        """Expire rows that are too old for all windows, and set their sizes."""
        if not self.active:
            return
        for window in self.windows:
            gone, first = self._gone[window], self._at - window.width
            for block in self._blocks:
                if block.first + block.taken > gone:
                    old = int(np.searchsorted(block.rows.times[: block.taken], first))
                    gone = max(gone, block.first + old)
                    if old < block.taken:
                        break
            self._gone[window] = gone
            window.used = 1
            window.elsewhere = self._arrived - gone
        oldest = min(self._gone.values())
        while self._blocks and self._blocks[0].first + self._blocks[0].taken <= oldest:
            self._blocks.popleft()

    def settle(self) -> None:
        """Give the operators the rows of the windows."""
        if not self.active:
            return
        self.trim()
        self.active = False
        for window in self.windows:
            window.elsewhere = 0
        for block in self._blocks:
            self._give(block)
        self._blocks.clear()
        for plan in self._plans:
            plan.forget()
            # What comes out of it was shown already.
            plan.plan.flush()

    def _give(self, block: _Block) -> None:
        times, subjects = (each[: block.taken].tolist() for each in block.rows[:2])
        rows = {}
        for window, cells in block.rows.cells.items():
            columns = [column[: block.taken].tolist() for column in cells]
            rows[window] = list(zip(*columns, strict=True))
        for row in range(block.taken):
            for window, solutions in rows.items():
                if block.first + row >= self._gone[window]:
                    window.arrive_star(times[row], subjects[row], solutions[row])


def _number(window: StarWindow) -> int:
    return window.number
