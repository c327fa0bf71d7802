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

from annotations.instants import format_instant, from_micros, parse_instant
from annotations.namespaces import integer
from annotations.nesting import most_written
from annotations.terms import Quad, Term, iri, literal
from loaders import vocabulary as v
from loaders.errors import InputError
from loaders.places import InputPlace, content_of, input_place, names_below, parsed_json
from loaders.sources.base import FeedBatch, Items, is_within, last_values, size_of
from loaders.sources.polling import RecordedPolls
from loaders.sources.reading import archive, member

_NOT_CANCELLED = frozenset({"0", "", "no", "none", "false"})
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
        matches = map(_DOCUMENT.fullmatch, self._members())
        polls = {int(match[1]): match[0] for match in matches if match}
        if not polls:
            raise InputError("holds no liveboard (files like 1417772214687.dat)", str(path))
        instants = sorted(polls)
        gaps = Counter(later - earlier for earlier, later in pairwise(instants))
        usual = gaps.most_common(1)[0][0] if gaps else 60_000
        named = {from_millis(poll): polls[poll] for poll in instants}
        super().__init__(named, timedelta(milliseconds=usual))

    def _members(self) -> list[str]:
        if self.path.is_dir():
            return names_below(self.path)
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
        instant = parse_instant(departure.departure_time[1:].partition('"')[0])
        return is_within(instant, self.start, self.until)

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


def read_liveboard(content: bytes, source: str) -> Sequence[Quad]:
    """Return all statements of a liveboard, for a `Poller`."""
    items = Items("departure", source)
    listed = _departures(content, source, items)
    return items.result(
        last_values(quad for each in listed for quad in (*each.static(), *each.dynamic()))
    )


def departures(content: bytes, source: str) -> Sequence[Departure]:
    """Return the departures of a liveboard, in either form."""
    items = Items("departure", source)
    listed = list(_departures(content, source, items))
    items.result(())
    return listed


def _departures(content: bytes, source: str, items: Items) -> Iterator[Departure]:
    document = parsed_json(content, source)
    try:
        if b"\\" in content:
            # Half of a pair of escapes is no character.
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error})", source) from None
    board = document if isinstance(document, dict) else {}
    listed = board.get("departures")
    listed = listed.get("departure", []) if isinstance(listed, dict) else None
    if isinstance(graph := board.get("@graph"), list):
        for entry in graph:
            with items.item():
                yield departure(entry)
    elif isinstance(listed, list):
        # It is written once, and its name is said of each departure.
        if len(listed) * len(str(board.get("stationinfo"))) > most_written(len(content)):
            raise InputError("the name of the station is too long", source)
        for entry in listed:
            with items.item():
                yield listed_departure(entry, board)
    else:
        raise InputError("no liveboard: it has no @graph, and no list of departures", source)


def listed_departure(entry: Any, board: Mapping[str, Any]) -> Departure:
    """Read a departure of the API's own JSON."""
    platform = entry.get("platform", "")
    cancelled = str(entry.get("canceled")).lower() not in _NOT_CANCELLED
    return departure(
        {
            "@id": entry["departureConnection"],
            "stop": board["stationinfo"]["@id"],
            "headsign": entry["station"],
            "routeLabel": (entry.get("vehicleinfo") or {}).get("shortname") or entry["vehicle"],
            "scheduledDepartureTime": format_instant(from_micros(int(entry["time"]) * 1_000_000)),
            "delay": "cancel" if cancelled else entry["delay"],
            "platform": "" if platform == "?" else platform,
        }
    )


def departure(entry: Any) -> Departure:
    """Read one departure of a liveboard."""
    scheduled = entry["scheduledDepartureTime"]
    parse_instant(scheduled)
    platform = entry["platform"] or ""
    if not isinstance(platform, str):
        raise ValueError(f"no platform: {platform!r}")
    return Departure(
        iri(entry["@id"]), iri(entry["stop"]), literal(entry["headsign"]),
        literal(entry["routeLabel"]), v.date_time(scheduled),
        None if entry["delay"] == "cancel" else int(entry["delay"]), platform,
    )  # fmt: skip


def from_millis(millis: int) -> datetime:
    """Return the instant so many milliseconds after 1970."""
    return from_micros(millis * 1000)
