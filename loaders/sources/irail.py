"""Liveboards of the Belgian railway API: one JSON document per poll.

A recording has documents named by milliseconds since 1970 (``1417772214687.dat`` or ``….json``),
with an ``@graph`` of departures (``@id``, ``stop``, ``headsign``, ``routeLabel``,
``scheduledDepartureTime``, ``platform``, ``delay``: seconds or ``cancel``) or the API's own JSON.
Delay, platform and status hold until the next poll.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from annotations.errors import InstantError, TermError
from annotations.instants import format_instant, from_micros, parse_instant
from annotations.namespaces import integer
from annotations.nesting import most_written
from annotations.terms import Quad, Term, iri, literal
from loaders import vocabulary as v
from loaders.errors import InputError
from loaders.places import InputPlace, content_of, input_place, names_below
from loaders.sources.base import FeedBatch, last_values, size_of
from loaders.sources.polling import RecordedPolls
from loaders.sources.reading import archive, member

_NOT_CANCELLED = frozenset({"0", "", "no", "none", "false"})
"""Texts, and values of JSON as texts."""
_DOCUMENT = re.compile(r"(?:.*/)?(\d{12,14})\.(?:dat|json)")


class Departure(NamedTuple):
    """A departure; `delay` in seconds, ``None``: cancelled."""

    subject: Term
    stop: Term
    head_sign: Term
    route_label: Term
    departure_time: Term
    delay: int | None
    platform: str

    def static(self) -> Iterator[Quad]:
        yield Quad(self.subject, v.A, v.DEPARTURE)
        yield Quad(self.subject, v.ROUTE_LABEL, self.route_label)
        yield Quad(self.subject, v.HEAD_SIGN, self.head_sign)
        yield Quad(self.subject, v.DEPARTURE_TIME, self.departure_time)
        yield Quad(self.subject, v.STOP, self.stop)

    def dynamic(self) -> Iterator[Quad]:
        """Yield its statements that hold until the next poll."""
        if self.delay is None:
            yield Quad(self.subject, v.STATUS, v.CANCELLED)
        else:
            yield Quad(self.subject, v.DELAY, integer(self.delay))
        if self.platform:
            yield Quad(self.subject, v.PLATFORM, literal(self.platform))


class Irail(RecordedPolls[str]):
    """A recording of liveboards."""

    name = "irail"
    prefixes: Mapping[str, str] = v.PREFIXES

    def __init__(
        self, path: str | InputPlace, start: datetime | None = None, until: datetime | None = None
    ) -> None:
        self.path = input_place(path)
        self.start = start
        self.until = until
        polls: dict[int, str] = {}
        for name in self._members():
            if match := _DOCUMENT.fullmatch(name):
                polls[int(match.group(1))] = name
        if not polls:
            raise InputError("holds no liveboard (files like 1417772214687.dat)", str(path))
        instants = sorted(polls)
        gaps = Counter(later - earlier for earlier, later in pairwise(instants))
        usual = gaps.most_common(1)[0][0] if gaps else 60_000
        named = {from_millis(poll): polls[poll] for poll in instants}
        super().__init__(named, timedelta(milliseconds=usual))

    def _members(self) -> list[str]:
        try:
            if self.path.is_dir():
                return names_below(self.path)
        except OSError as error:
            raise InputError(error.strerror or str(error), str(self.path)) from error
        with archive(self.path) as opened:
            return opened.namelist()

    # The static side.

    def size(self) -> int:
        """About how many bytes the documents have."""
        return size_of([self.path])

    def pieces(self, count: int) -> Sequence[str]:
        """Split the documents into `count` even lists."""
        members = [name for _, _, name in self._polls]
        size = -(-len(members) // max(count, 1))
        return [json.dumps(members[i : i + size]) for i in range(0, len(members), size)]

    def quads(self, piece: str) -> Iterator[Quad]:
        """Yield the static facts of some documents, each once."""
        seen: set[Term] = set()
        for name, text in self._read(json.loads(piece)):
            for departure in departures(text, f"{self.path}: {name}"):
                if departure.subject not in seen:
                    seen.add(departure.subject)
                    if self._is_wanted(departure):
                        yield from departure.static()

    def _is_wanted(self, departure: Departure) -> bool:
        if self.start is None and self.until is None:
            return True
        instant = parse_instant(departure.departure_time[1:].partition('"')[0])
        return (self.start is None or self.start <= instant) and (
            self.until is None or instant < self.until
        )

    # The feed.

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        polls = self.selected(start, until)
        documents = self._read([name for _, _, name in polls])
        for (at, end, _), (name, text) in zip(polls, documents, strict=True):
            listed = departures(text, f"{self.path}: {name}")
            quads = last_values(quad for each in listed for quad in each.dynamic())
            yield FeedBatch(at, end, quads)

    # Reading.

    def _read(self, members: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        if self.path.is_dir():
            for name in members:
                yield name, content_of(self.path / name)
            return
        with archive(self.path) as opened:
            for name in members:
                with member(opened, name) as document:
                    yield name, document.read()


def read_liveboard(content: bytes, source: str) -> tuple[Quad, ...]:
    """Return all statements of a liveboard, for a `Poller`."""
    listed = departures(content, source)
    return last_values(quad for each in listed for quad in (*each.static(), *each.dynamic()))


def departures(content: bytes, source: str) -> Iterator[Departure]:
    """Yield the departures of a liveboard, in either form."""
    try:
        document = json.loads(content)
        if b"\\" in content:
            # Half of a pair of escapes is no character.
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise InputError("not JSON (nested too deeply)", source) from None
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise InputError(f"not JSON ({error})", source, line) from None
    board = document if isinstance(document, dict) else {}
    if isinstance(graph := board.get("@graph"), list):
        for entry in graph:
            yield departure(entry, source)
    elif isinstance(listed := _listed(board), list):
        left = most_written(len(content))
        for entry in listed:
            read = listed_departure(entry, board, source)
            # The name of the station is written once, and is said of each departure.
            left -= len(read.stop)
            if left < 0:
                raise InputError("the name of the station is too long", source)
            yield read
    else:
        raise InputError("no liveboard: it has no @graph, and no list of departures", source)


def _listed(board: Mapping[str, Any]) -> Any:
    listed = board.get("departures")
    return listed.get("departure", []) if isinstance(listed, dict) else None


def listed_departure(entry: Any, board: Mapping[str, Any], source: str) -> Departure:
    """Read a departure of the API's own JSON."""
    try:
        scheduled = format_instant(from_micros(int(entry["time"]) * 1_000_000))
        platform = entry.get("platform", "")
        cancelled = str(entry.get("canceled")).lower() not in _NOT_CANCELLED
        return departure(
            {
                "@id": entry["departureConnection"],
                "stop": board["stationinfo"]["@id"],
                "headsign": entry["station"],
                "routeLabel": entry.get("vehicleinfo", {}).get("shortname") or entry["vehicle"],
                "scheduledDepartureTime": scheduled,
                "delay": "cancel" if cancelled else entry["delay"],
                "platform": "" if platform == "?" else platform,
            },
            source,
        )
    except KeyError as error:
        raise InputError(f"a departure without {error.args[0]!r}", source) from None
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InputError(f"a malformed departure ({error})", source) from None


def departure(entry: Any, source: str) -> Departure:
    """Read one departure of a liveboard."""
    try:
        scheduled = entry["scheduledDepartureTime"]
        parse_instant(scheduled)
        delay = None if entry["delay"] == "cancel" else int(entry["delay"])
        platform = entry["platform"] or ""
        if not isinstance(platform, str):
            raise ValueError(f"no platform: {platform!r}")
        return Departure(
            iri(entry["@id"]), iri(entry["stop"]), literal(entry["headsign"]),
            literal(entry["routeLabel"]), v.date_time(scheduled), delay, platform,
        )  # fmt: skip
    except KeyError as error:
        raise InputError(f"a departure without {error.args[0]!r}", source) from None
    except (TypeError, ValueError, OverflowError, AttributeError, InstantError, TermError) as error:
        raise InputError(f"a malformed departure ({error})", source) from None


def from_millis(millis: int) -> datetime:
    """Return the instant so many milliseconds after 1970."""
    return from_micros(millis * 1000)
