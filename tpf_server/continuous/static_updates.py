"""Lets the queries of a service see what changes in its static data.

Whatever can be found out while others go on is found out outside the lock of the service.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

from annotations.clock import Clock
from annotations.terms import Term
from tpf_server.continuous.changing_graphs import ChangingGraphs
from tpf_server.continuous.engine.static.preparation import Preparation
from tpf_server.continuous.engine.static.static_data import StaticData
from tpf_server.continuous.engine.static.store_graph import StoreGraph
from tpf_server.store.protocols import LiveStore


class StaticUpdates:
    """Puts changes of static data in, one after the other.

    Args:
        static: the data.
        changing: graphs that follow live stores and what is read elsewhere.
        clock: what the time is.
        lock: of the service.
        settle: is called under the lock when queries have seen a change.
    """

    def __init__(
        self,
        static: StaticData,
        changing: ChangingGraphs,
        clock: Clock,
        lock: AbstractContextManager[Any],
        settle: Callable[[], None],
    ) -> None:
        self._static = static
        self._changing = changing
        self._clock = clock
        self._lock = lock
        self._settle = settle
        self._turn = threading.Condition()
        self._doing: Literal["", "update", "exchange"] = ""
        self._closed = False

    def exchange(
        self,
        graphs: Mapping[Term, Sequence[StoreGraph]],
        live: Mapping[Term, LiveStore],
    ) -> None:
        """See `ContinuousService.exchange_static`."""
        self._begin("exchange")
        try:
            # Graphs change only here, one after the other: what is prepared stays right.
            with self._lock:
                prepared = Preparation(self._static.copy(), self._static.with_stores(graphs))
                self._static.ask(graphs, prepared)
            prepared.run()
            with self._lock:
                if not self._closed:
                    self._static.exchange(graphs, prepared)
                    self._changing.follow(live)
                    self._settle()
        finally:
            self._end()
        self.update()

    def update(self) -> None:
        """Let queries see what has changed in graphs that change by themselves.

        While stores are exchanged nobody waits for that: what has changed is seen right after it.
        """
        with self._turn:
            self._turn.wait_for(lambda: self._doing != "update")
            if self._doing:
                return
            self._doing = "update"
        try:
            pending = self._changing.pending(self._clock.now())
            if pending:
                with self._lock:
                    if not self._closed:
                        self._changing.apply(pending)
                        self._settle()
        finally:
            self._end()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing else is put in meanwhile."""
        self._begin("update")
        try:
            yield
        finally:
            self._end()

    def _begin(self, what: Literal["update", "exchange"]) -> None:
        """Wait for one's turn, and take it."""
        with self._turn:
            self._turn.wait_for(lambda: not self._doing)
            self._doing = what

    def _end(self) -> None:
        with self._turn:
            self._doing = ""
            self._turn.notify_all()

    def close(self) -> None:
        """Nothing is put in any more. The lock is held by who calls this."""
        self._closed = True
