"""Plans that take the records of a stream as columns, together.

As soon as anything else happens (an element by itself, another query, a look at the plans), the
operators get the rows of the windows, and go on as if they had had them all the time.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.state.ranked_groups import WITH_ROW
from tpf_client.sparql.expressions.inlined import TAG
from tpf_server.continuous.engine.delivery import Phase
from tpf_server.continuous.engine.plans.column_expressions import Column
from tpf_server.continuous.engine.plans.fused_plan import FusedPlan, FusedRows
from tpf_server.continuous.engine.windows.specification import NEVER
from tpf_server.continuous.engine.windows.star_window import StarWindow

_PATIENCE: Final = 8
"""So many times the rows that went back to the operators must come before they are taken again."""
_RECENT: Final = 32
"""So many rows that came last a window remembers, whether they are gone or not."""


class _Taken:
    """Rows, and how many of them were taken."""

    __slots__ = ("rows", "taken")

    def __init__(self, rows: FusedRows, taken: int = 0) -> None:
        self.rows = rows
        self.taken = taken

    def columns(self) -> Iterator[Column]:
        """Those of terms."""
        yield self.rows.subjects
        yield from chain.from_iterable(self.rows.cells.values())


class _Held:
    """What a window holds: all that was taken, but for what is gone."""

    __slots__ = ("block", "gone", "row", "window")

    def __init__(self, window: StarWindow) -> None:
        self.window = window
        self.block = 0
        self.row = 0
        self.gone = 0


class FusedStream:
    """The rows of windows, for all plans of an engine.

    Args:
        plans: all of them.
        phase: of the engine.

    Attributes:
        active: whether the rows are here, and not with the operators.
        failure: what a state raised; from then on the operators take all rows.
        windows: of all plans.
    """

    def __init__(self, plans: Sequence[FusedPlan], phase: Phase) -> None:
        self.active = False
        self.failure: Exception | None = None
        self.windows = sorted(set().union(*(each.windows for each in plans)), key=_number)
        self._plans = plans
        self._phase = phase
        self._blocks: dict[int, _Taken] = {}
        self._next = self._adopted = 0
        # How many rows came since, with those that were adopted, and of how many it has columns.
        self._arrived = self._kept = 0
        self._held: list[_Held] = []
        self._owed = 0
        # The time of the row that came last.
        self._at = 0

    def room(self, window_rows: int) -> int:
        """How many rows may come until the windows of a plan hold too much, at least."""
        return min(
            (window_rows - sum(each.held for each in plan.windows)) // len(plan.windows)
            for plan in self._plans
        )

    def run(self, rows: FusedRows, passed: Callable[[int, int], None]) -> int:
        """Let rows come, one after the other, as far as that can be done here.

        Args:
            rows: at least one; none is older than the one before it, nor than the engine.
            passed: is told of rows that came: the time of the last one, and how many; and of
                instants between rows at which something changed, with none. What changed is to be
                emitted before the next one comes.

        Returns:
            How many came.
        """
        count = len(rows.times)
        if self.failure is not None:
            return 0
        if not self.active and self._owed > 0:
            self._owed -= count
            return 0
        try:
            batches, count = self._begun(rows, count)
        except Exception as error:  # noqa: BLE001 (see `_fail`)
            self._fail(error)
            count = 0
        if not count:
            self._forget()
            return 0
        last = self._blocks[self._next] = _Taken(rows)
        self._next += 1
        done, instant = 0, WITH_ROW
        try:
            while done < count and self.active:
                before = done
                try:
                    done, instant = self._go_on(batches, (done, instant), count)
                    last.taken = done
                    self._arrived += done - before
                    self._kept += done - before
                    if done > before:
                        self._at = int(rows.times[done - 1])
                        if instant != WITH_ROW:
                            # What these changed is not shown.
                            passed(self._at, done - before)
                            before = done
                    self._at = max(self._at, instant)
                    self._show((done, instant))
                except Exception as error:  # noqa: BLE001 (see `_fail`)
                    self._fail(error, came=done > before or instant != WITH_ROW)
                if done > before or instant != WITH_ROW:
                    passed(self._at, done - before)
                if any(each.refused and each.reached == (done, instant) for each in self._plans):
                    self.settle()
        except BaseException:
            # Some plans may be ahead: they took rows that do not come any more.
            self.settle()
            raise
        self.trim()
        return done

    def _begun(self, rows: FusedRows, count: int) -> tuple[list[Any], int]:
        """Rows as each plan goes on with them, and how many; 0: they are for the operators."""
        for plan in self._plans:
            plan.unfit = False
        columns, count = self._prepared(rows, count)
        if not count or (not self.active and not self._adopt()):
            return [], 0
        plans = zip(self._plans, columns, strict=True)
        return [plan.batch(each, count) for plan, each in plans], count

    def _fail(self, error: Exception, *, came: bool = False) -> None:
        """The operators take over, for good: all rows reach all queries.

        Args:
            error: what a state raised.
            came: whether it did after a row came; what that changed is emitted all the same.
        """
        self.failure = error
        self._phase.inserting = came
        self.settle()
        self._phase.inserting = False

    def holders(self) -> list[object] | None:
        """What holds the terms of its rows; ``None``: more than these are held, if it is active."""
        if not self.active:
            return []
        if any(plan.makes_terms for plan in self._plans):
            return None
        columns = [each for block in self._blocks.values() for each in block.columns()]
        different = {id(each): each for each in columns}.values()
        for plan in self._plans:
            # What is shown is held by who shows it.
            plan.made.clear()
        return [np.unique(each[each & TAG == 0]).tolist() for each in different]

    def _forget(self) -> None:
        """What was found out of rows that did not come does not matter to those that will."""
        if not self.active:
            for plan in self._plans:
                plan.forget()

    def _prepared(self, rows: FusedRows, count: int) -> tuple[list[list[Column]], int]:
        found = []
        for plan in self._plans:
            most = count
            columns, count = plan.prepared(rows, count)
            # What does not fit may be of the batch, or what of the windows comes with it.
            plan.unfit = plan.unfit or count < most
            if not count:
                break
            found.append(columns)
        return found, count

    def _go_on(
        self, batches: Sequence[Any], position: tuple[int, int], count: int
    ) -> tuple[int, int]:
        """All plans take rows until one shows something else; some may be ahead."""
        for plan, batch in zip(self._plans, batches, strict=True):
            if plan.reached == position:
                plan.go_on(batch, count)
            rows, instant = plan.reached
            # Who looks at an instant before a row stops nobody before that row.
            count = min(count, rows + (instant != WITH_ROW))
        return min(plan.reached for plan in self._plans)

    def _show(self, position: tuple[int, int]) -> None:
        changed = [each for each in self._plans if each.changed and each.reached == position]
        for plan in changed:
            plan.show_before()
        self._phase.inserting = True
        for plan in changed:
            plan.show()
        self._phase.inserting = False

    # ------------------------------------------------------------------------------ windows

    def trim(self) -> None:
        """Rows that are too old for a window are not in it any more; windows know what they hold.

        So it is after each batch; in the midst of one somebody must say it who looks at that.
        """
        if not self.active:
            return
        for held in self._held:
            window, first = held.window, self._at - held.window.width
            while (block := self._blocks.get(held.block)) is not None:
                times, taken = block.rows.times, block.taken
                if not taken or times[taken - 1] < first:
                    held.gone += taken - held.row
                    held.row = taken
                    if held.block + 1 not in self._blocks:
                        break
                    held.block, held.row = held.block + 1, 0
                    continue
                if held.row < taken and times[held.row] < first:
                    row = int(np.searchsorted(times[:taken], first))
                    held.gone += row - held.row
                    held.row = row
                break
            window.used = 1
            window.elsewhere = self._arrived - held.gone
        oldest = min(each.block for each in self._held)
        while (number := next(iter(self._blocks))) < oldest:
            rest = self._kept - self._blocks[number].taken
            if rest < _RECENT:
                break
            self._kept = rest
            del self._blocks[number]

    def settle(self, *, briefly: bool = False) -> None:
        """The operators get the rows of the windows.

        Args:
            briefly: they need not have seen many more before these are taken again.
        """
        if not self.active:
            return
        self.trim()
        self.active = False
        for window in self.windows:
            window.elsewhere = 0
        recent = {window: [*window.recent, *self._latest(window)] for window in self.windows}
        for number, block in self._blocks.items():
            self._give_back(number, block)
        for window, rows in recent.items():
            window.recent.extend(rows[-_RECENT:])
        if not briefly:
            self._owed = _PATIENCE * max(self._arrived - each.gone for each in self._held)
        self._blocks.clear()
        self._held = []
        for plan in self._plans:
            plan.forget()
            # What comes out of it is what was shown already.
            plan.plan.flush()

    def _latest(self, window: StarWindow) -> list[Solution]:
        """The rows that came last since they are here, as a window would remember them."""
        found: list[Solution] = []
        for number in reversed(self._blocks):
            block = self._blocks[number]
            if number < self._adopted or len(found) >= _RECENT:
                break
            part = slice(max(0, block.taken - _RECENT), block.taken)
            columns = [column[part].tolist() for column in block.rows.cells[window]]
            found[:0] = zip(*columns, strict=True)
        return found

    def _give_back(self, number: int, block: _Taken) -> None:
        times, subjects = (each[: block.taken].tolist() for each in block.rows[:2])
        parts: list[tuple[int, StarWindow, list[Solution]]] = []
        for held in self._held:
            start = 0
            if held.block >= number:
                start = held.row if held.block == number else block.taken
            cells = block.rows.cells[held.window]
            columns = [column[start : block.taken].tolist() for column in cells]
            parts.append((start, held.window, list(zip(*columns, strict=True))))
        for row in range(min(start for start, _, _ in parts), block.taken):
            for start, window, solutions in parts:
                if row >= start:
                    window.arrive_star(times[row], subjects[row], solutions[row - start])

    def _adopt(self) -> bool:
        """Take the rows of the windows from the operators; whether that could be done."""
        if any(plan.waits for plan in self._plans):
            return False
        found = self._present()
        if found is None:
            return False
        rows, count = found
        if count:
            columns, taken = self._prepared(rows, count)
            if taken < count:
                return False
            for plan, each in zip(self._plans, columns, strict=True):
                plan.take(each, count)
        for window in self.windows:
            window.clear()
            window.elsewhere = count - rows.absent[window]
        for plan in self._plans:
            plan.clear_operators()
        self._blocks = {0: _Taken(rows, count)}
        self._next = self._adopted = 1
        self._arrived = self._kept = count
        self._at = int(rows.times[-1]) if count else NEVER
        self._held = [_Held(window) for window in self.windows]
        for held in self._held:
            held.row = held.gone = rows.absent[held.window]
        self.active = True
        for plan in self._plans:
            plan.answer()
        return True

    def _present(self) -> tuple[FusedRows, int] | None:
        """The rows of all windows; ``None``: they are not ends of the same rows."""
        every = [(window, window.entries()) for window in self.windows]
        known = [(window, entries) for window, entries in every if entries is not None]
        if len(known) < len(every):
            return None
        all_of = max((entries for _, entries in known), key=len)
        count = len(all_of)
        names = [entry[:2] for entry in all_of]
        cells: dict[StarWindow, list[Column]] = {}
        absent = {}
        try:
            times, subjects = (np.array([e[n] for e in all_of], np.int64) for n in (0, 1))
            for window, entries in known:
                first = absent[window] = count - len(entries)
                if [entry[:2] for entry in entries] != names[first:]:
                    return None
                width = window.matcher.width
                columns = zip(*[row for _, _, row in entries], strict=True)
                arrays = [np.array(each, np.int64) for each in columns]
                arrays = arrays or [np.zeros(0, np.int64) for _ in range(width)]
                cells[window] = [
                    np.concatenate([np.zeros(first, np.int64), each]) for each in arrays
                ]
        except OverflowError:
            return None
        return FusedRows(times, subjects, cells, absent), count


def _number(window: StarWindow) -> int:
    return window.number
