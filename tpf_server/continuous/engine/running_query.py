"""A continuous query that runs, in whatever language it was written."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from tpf_server.continuous.engine.errors import BacklogError, CallbackError, ContinuousError

EmissionT = TypeVar("EmissionT")


class RunningQuery(Generic[EmissionT]):
    """What is the same of all: its name, its state, and who takes what it emits.

    Args:
        name: what it was registered as.
        callback: is called with each emission; ``None``: they wait until somebody takes them.
        backlog: how many may wait; with one more the reader is cut off, and the query stopped.
        drop: lets go of what it holds.

    Attributes:
        name: see above.
        take: is called with each emission; what it raises is for `fail`.
        waiting: emissions that nobody took.
        emitted: how many rows it emitted, or in C-SPARQL how many answers.
        state: ``running``, ``stopped`` (by a limit, or because its callback raised) or ``closed``.
        error: why it was stopped.
    """

    def __init__(
        self,
        name: str,
        callback: Callable[[EmissionT], None] | None,
        backlog: int,
        drop: Callable[[Any], None],
    ) -> None:
        self.name = name
        self.take = self._keep if callback is None else callback
        self.waiting: deque[EmissionT] = deque()
        self.emitted = 0
        self.state = "running"
        self.error: ContinuousError | None = None
        self._backlog = backlog
        self._drop = drop

    def _keep(self, emission: EmissionT) -> None:
        if len(self.waiting) >= self._backlog:
            raise BacklogError(f"{self.name}: {self._backlog} results wait to be taken")
        self.waiting.append(emission)

    def __iter__(self) -> Iterator[EmissionT]:
        """The emissions that wait; each is given once.

        Raises:
            ContinuousError: it was stopped; after what it emitted before.
        """
        while self.waiting:
            yield self.waiting.popleft()
        if self.error is not None:
            raise self.error

    def fail(self, error: Exception) -> None:
        """End the query because `take` has raised this, whatever it is: it is its alone."""
        self.stop(error if isinstance(error, BacklogError) else CallbackError(self.name, error))

    def stop(self, error: ContinuousError) -> None:
        """End the query for this reason, and let go of what it holds."""
        self.state = "stopped"
        self.error = error
        self._drop(self)

    def close(self) -> None:
        """End the query and let go of what it holds; nothing happens where it has ended."""
        if self.state == "running":
            self.state = "closed"
        self._drop(self)

    def explain(self) -> dict[str, Any]:
        """Its state."""
        found: dict[str, Any] = {"name": self.name, "state": self.state, "emitted": self.emitted}
        if self.error is not None:
            found["error"] = str(self.error)
        return found
