"""Until which instant everything has come, stream by stream, and so for queries over them."""

from collections.abc import Collection

from annotations.terms import Term
from tpf_server.continuous.engine.windows.stream_time import NEVER


class StreamTimes:
    """The times of streams.

    An element says that everything before it has come of its stream. A query over several streams
    has passed an instant when all of them have; it does not wait for those that are further behind
    the foremost than its patience allows, nor, where somebody knows what time it is, for those that
    have not come so far by then.

    Args:
        lateness: by how much everything stays behind what elements say, in milliseconds.
        patience: see above; in milliseconds.

    Attributes:
        present: what time it is, where somebody knows; ``None``: nobody does.
        newest: the newest instant that an element or somebody told; `NEVER` before.
    """

    def __init__(self, lateness: int, patience: int) -> None:
        self.present: int | None = None
        self.newest = NEVER
        self._lateness = lateness
        self._patience = patience
        self._passed: dict[Term, int] = {}
        self._told = NEVER

    def came(self, stream: Term, at: int) -> None:
        """An element of a stream has this timestamp."""
        if at > self.newest:
            self.newest = at
        if at > self._passed.get(stream, NEVER):
            self._passed[stream] = at - 1

    def tell(self, at: int) -> None:
        """Everything up to an instant has come, of all streams."""
        self.newest = max(self.newest, at)
        self._told = max(self._told, at)

    def passed(self, streams: Collection[Term], awaited: Collection[Term]) -> int:
        """Until when everything has come that a query wants; `NEVER` where nobody knows.

        Args:
            streams: whose elements it sees, also by what queries make of them.
            awaited: those of them that no query makes.
        """
        own = self._passed
        if len(streams) == 1:
            (stream,) = streams
            return max(own.get(stream, NEVER), self._told) - self._lateness
        foremost = max([own.get(each, NEVER) for each in streams], default=NEVER)
        last = min([own.get(each, NEVER) for each in awaited], default=NEVER)
        present = self.present
        bound = foremost - self._patience if present is None else min(foremost, present - 1)
        return max(last, bound, self._told) - self._lateness
