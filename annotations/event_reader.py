"""Parse server-sent events (HTML standard, section "Server-sent events")."""

from collections.abc import Iterator
from typing import Final, NamedTuple

_MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark that a stream may begin with."""
_LONGEST_RETRY: Final = 60.0


def event_headers(last: str | None) -> dict[str, str]:
    """Return request headers for the events after the `last` one."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if last is not None:
        # UTF-8, as the standard has it; libraries write fields in Latin-1.
        headers["Last-Event-ID"] = last.strip().encode().decode("latin-1")
    return headers


class ServerEvent(NamedTuple):
    """An event: its name (``message`` by default), identifier and lines."""

    name: str
    id: str | None
    data: str


class EventReader:
    """Parse events of at most `most` characters from pieces of a stream."""

    def __init__(self, most: int) -> None:
        self.retry: float | None = None
        """Seconds until the next connection, where the server said."""
        self._most = most
        self._left = bytearray()
        self._started = False
        self._clear()

    def _clear(self) -> None:
        self._name = ""
        self._id: str | None = None
        self._data: list[str] = []
        self._size = 0

    def feed(self, content: bytes) -> Iterator[ServerEvent]:
        """Yield the events that end in these bytes; `ValueError` for one too long."""
        # A carriage return may be the first half of a line's end.
        ends = b"\n" in content or b"\r" in content or self._left.endswith(b"\r")
        self._left += content
        if not self._started:
            if len(self._left) < 3 and _MARK.startswith(bytes(self._left)):
                return
            self._started = True
            self._left = self._left.removeprefix(_MARK)
        lines: list[bytearray] = []
        if ends:
            lines = self._left.splitlines(keepends=True)
            whole = lines[-1].endswith(b"\n")
            self._left = bytearray() if whole else lines.pop()
        if self._size + len(self._left) > self._most:
            raise self._too_long()
        for line in lines:
            event = self._line(line.rstrip(b"\r\n").decode("utf-8", "replace"))
            if event is not None:
                yield event

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            event = ServerEvent(self._name or "message", self._id, "\n".join(self._data))
            complete = bool(self._data)
            self._clear()
            return event if complete else None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        self._size += len(line)
        if self._size > self._most:
            raise self._too_long()
        match field:
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit() and len(value) < 10:
                self.retry = min(int(value) / 1000, _LONGEST_RETRY)
        return None

    def _too_long(self) -> ValueError:
        return ValueError(f"an event of more than {self._most} characters")
