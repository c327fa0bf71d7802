"""A continuous query as its user sees it: a stream of updates."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from annotations.instants import format_instant
from tpf_client.errors import SourceError
from tpf_client.solutions import Solution, table
from tpf_client.streaming.streamer import Streamer, Tick

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Update:
    """What one evaluation of a continuous query found.

    Args:
        at: the instant of the evaluation, on the server's clock.
        added: solutions that were not there before, each as often as it is new.
        removed: solutions that are gone.
        valid_until: the instant at which the first fact that was looked at expires; ``None`` where
            none does.
        error: why the evaluation failed; then nothing changed, and it will be tried again.
        warnings: what is wrong in the data, each said once.
        dynamic: whether the dataset can change at all.
    """

    at: datetime
    added: tuple[Solution, ...]
    removed: tuple[Solution, ...]
    valid_until: datetime | None
    error: SourceError | None
    warnings: tuple[str, ...]
    dynamic: bool
    _tick: Tick

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, without their question marks."""
        return tuple(name[1:] for name in self._tick.variables)

    @property
    def results(self) -> list[Solution]:
        """The whole answer as of the stream's newest update, with multiplicities."""
        return [Solution(self._tick.variables, row) for row in self._tick.answer()]

    def to_pandas(self) -> "pandas.DataFrame":
        """The whole answer as a table."""
        return table(self.variables, self.results)

    def to_json(self) -> dict[str, Any]:
        """The update as a JSON object: instants in ISO 8601, solutions as SPARQL JSON bindings."""
        result: dict[str, Any] = {
            "at": format_instant(self.at),
            "added": [solution.to_json() for solution in self.added],
            "removed": [solution.to_json() for solution in self.removed],
            "valid_until": None if self.valid_until is None else format_instant(self.valid_until),
        }
        if self.error is not None:
            result["error"] = str(self.error)
        if self.warnings:
            result["warnings"] = list(self.warnings)
        return result


class Stream:
    """A continuous query: iterate over its updates, hand them to a callback, or `async for`.

    Leaving the loop, `close`, or closing the client stops all its requests.
    """

    def __init__(self, streamer: Streamer) -> None:
        self.streamer = streamer
        self._updates: Iterator[Update] | None = None

    def __iter__(self) -> Iterator[Update]:
        """The updates; the first one holds the whole answer.

        Raises:
            SourceError: the first evaluation failed. Later failures are updates with an error.
        """
        if self._updates is None:
            self._updates = self._iterate()
        return self._updates

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop, from whatever thread."""
        self.streamer.close()

    def _iterate(self) -> Iterator[Update]:
        for tick in self.streamer.ticks():
            yield Update(
                tick.at,
                tuple(Solution(tick.variables, row) for row in tick.added),
                tuple(Solution(tick.variables, row) for row in tick.removed),
                tick.valid_until,
                tick.error,
                tick.warnings,
                tick.dynamic,
                tick,
            )
