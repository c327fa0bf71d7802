"""Lets the queries of a service see what changes in its static data.

Whatever can be found out while others go on is found out outside the lock of the service.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from annotations.clock import Clock
from annotations.terms import Term
from tpf_server.continuous.changing_graphs import ChangingGraphs
from tpf_server.continuous.engine.static.static_data import StaticData, StoreGraph
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
        self._one = threading.Lock()
        self._closed = False

    def exchange(
        self,
        graphs: Mapping[Term, Sequence[StoreGraph]],
        live: Mapping[Term, LiveStore],
    ) -> None:
        """See `ContinuousService.exchange_static`."""
        with self._one, self._lock:
            if not self._closed:
                self._static.exchange(graphs)
                self._changing.follow(live)
                self._settle()
        self.update()

    def update(self) -> None:
        """Let queries see what has changed in graphs that change by themselves."""
        with self._one:
            pending = self._changing.pending(self._clock.now())
            if pending:
                with self._lock:
                    if not self._closed:
                        self._changing.apply(pending)
                        self._settle()

    def close(self) -> None:
        """Nothing is put in any more. The lock is held by who calls this."""
        self._closed = True
