"""What an engine does from time to time: routes, limits, and terms that nobody needs any more."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from annotations.terms import Term
from tpf_server.continuous.engine.errors import EngineLimitError, WindowLimitError
from tpf_server.continuous.engine.forgetting import Forgetting
from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.windows.streams import ElementStream

_INTERVAL: Final = 64
_ADAPTATION: Final = 1024


class Housekeeping:
    """Looks after plans and terms every so many arrivals.

    Args:
        plans: whose routes are chosen anew, and whose windows are limited.
        streams: that these read.
        forgetting: of terms.
        window_rows: entries that the windows of one plan may hold.
        stop: ends the queries of a plan, and tells them why.
        merge: makes one of plans that have become alike.
    """

    def __init__(
        self,
        plans: Iterable[Plan],
        streams: Mapping[Term, ElementStream],
        forgetting: Forgetting,
        window_rows: int,
        stop: Callable[[Plan, EngineLimitError], None],
        merge: Callable[[], None],
    ) -> None:
        self._plans = plans
        self._streams = streams
        self._forgetting = forgetting
        self._window_rows = window_rows
        self._stop = stop
        self._merge = merge
        self._next_adaptation = self._looked = 0
        self._next_limit = 0

    def run(self, arrivals: int) -> int:
        """Do what is due.

        Args:
            arrivals: how many elements the engine has processed.

        Returns:
            After how many more arrivals to do it again.
        """
        self._merge()
        triples = self._triples()
        gone, self._looked = triples - self._looked, triples
        for plan in self._plans:
            plan.work.renew(gone * plan.work.most // 100)
        if arrivals >= self._next_adaptation:
            self._next_adaptation = arrivals + min(arrivals, _ADAPTATION)
            for plan in self._plans:
                plan.adapt()
        if triples >= self._next_limit:
            self._limit(triples)
        self._forgetting.sweep_where_due()
        # Often at first, when windows fill and routes settle; then rarely.
        return min(_INTERVAL, arrivals + 1)

    def _limit(self, triples: int) -> None:
        """Stop those whose windows hold too much, and see how soon others could.

        Args:
            triples: how many have come in all streams.
        """
        self._next_limit = triples + self._window_rows
        for plan in tuple(self._plans):
            held, soonest = self._room(plan)
            self._next_limit = min(self._next_limit, triples + soonest)
            if held > self._window_rows:
                allowed = f"{self._window_rows} are allowed"
                self._stop(
                    plan,
                    WindowLimitError(f"the windows of the query hold {held} entries; {allowed}"),
                )

    def _room(self, plan: Plan) -> tuple[int, int]:
        """How much the windows of a plan hold, and how many triples at least fill them."""
        windows = [window for window, _ in plan.leaves.subscriptions]
        held = sum(window.held for window in windows)
        if any(window.multiplies for window in windows):
            return held, 0
        return held, max(0, self._window_rows - held) // max(1, len(windows))

    def added(self, plan: Plan) -> None:
        """There is one more plan, or one more query of it."""
        self._next_limit = min(self._next_limit, self._triples() + self._room(plan)[1])

    def _triples(self) -> int:
        return sum(stream.triples for stream in self._streams.values())
