"""SIRI 2 (CEN/TS 15531): estimated timetables (ET) and monitored vehicles (VM), in XML.

Elements match by local names; identifiers are IRIs, or names below the base. A call with a
departure time is a departure, with expected (or actual) minus aimed time as its delay. Journeys are
named as in GTFS.
"""

import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from annotations.errors import InstantError
from annotations.instants import parse_instant
from annotations.namespaces import integer
from annotations.nesting import bounded_statements
from annotations.terms import Quad, Term, iri, literal
from loaders import vocabulary as v
from loaders.errors import InputError
from loaders.sources.base import Items, last_values
from loaders.sources.gtfs import GEO, GTFS

# Reads XML of others: without document types, so that no entity can be declared.

_CHUNK = 1 << 16
_DEPTH = 200


class _Tree(ElementTree.TreeBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> ElementTree.Element:
        self._depth += 1
        if self._depth > _DEPTH:
            raise ValueError(f"elements are nested more than {_DEPTH} deep")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> ElementTree.Element:
        self._depth -= 1
        return super().end(tag)

    def doctype(self, *_: object) -> None:
        raise ValueError("it has a document type, and may declare entities")


def read_xml(content: bytes, source: str) -> ElementTree.Element:
    """Parse a document; refuse document types and absurd nesting."""
    parser = ElementTree.XMLParser(target=_Tree())  # noqa: S314 - see the target
    try:
        for start in range(0, len(content), _CHUNK):
            parser.feed(content[start : start + _CHUNK])
        root: ElementTree.Element = parser.close()
    except ElementTree.ParseError as error:
        line, _ = error.position
        reason = str(error).partition(": line")[0]
        raise InputError(f"not XML ({reason})", source, line) from None
    except (ValueError, LookupError) as error:
        # LookupError: an encoding that nobody knows.
        raise InputError(f"not read ({error})", source) from None
    return root


SIRI_BASE = "http://example.org/siri/"
_TRIP = iri(GTFS + "trip")
_ROUTE = iri(GTFS + "route")
_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_DURATION = re.compile(
    r"(-?)P(?:0{1,6}Y)?(?:0{1,6}M)?(?:([0-9]{1,6})D)?(?:T(?:([0-9]{1,6})H)?(?:([0-9]{1,6})M)?(?:([0-9]{1,9})(?:\.[0-9]*)?S)?)?"
)
_WEB = re.compile(r"https?://[^\x00-\x20<>\"{}|\\^`]+")
_TRUE = frozenset({"true", "1"})


class Siri:
    """Reads messages of SIRI."""

    name = "siri"
    suffix = ".xml"

    def __init__(self, base: str = SIRI_BASE) -> None:
        self._base = base

    def read(self, content: bytes, source: str) -> Sequence[Quad]:
        """Return a message's statements; later ones replace earlier ones."""
        items = Items("SIRI message", source)
        quads: Sequence[Quad] = ()
        with items.item():
            # What is said of a journey once is said of each of its calls.
            statements = self._quads(_delivery(content, source), items)
            quads = last_values(bounded_statements(statements, len(content)))
        return items.result(quads)

    def instant(self, content: bytes, source: str) -> datetime:
        delivery = _delivery(content, source)
        # Of the service delivery, else of the first delivery in it.
        timestamp = _text(delivery, "ResponseTimestamp") or next(
            (text for each in delivery if (text := _text(each, "ResponseTimestamp"))), ""
        )
        try:
            return parse_instant(timestamp)
        except InstantError:
            raise InputError(f"a SIRI message of no instant: {timestamp!r}", source) from None

    def _quads(self, delivery: Element, items: Items) -> Iterator[Quad]:
        for each in delivery:
            match _name(each):
                case "EstimatedTimetableDelivery":
                    for journey in each.iter():
                        if _name(journey) == "EstimatedVehicleJourney":
                            yield from self._journey(journey, items)
                case "VehicleMonitoringDelivery":
                    for activity in _children(each, "VehicleActivity"):
                        for journey in _children(activity, "MonitoredVehicleJourney"):
                            with items.item():
                                yield from [*self._vehicle(journey)]

    def _journey(self, journey: Element, items: Items) -> Iterator[Quad]:
        named = self._reference(journey)
        if named is None:
            return
        cancelled = _text(journey, "Cancellation") in _TRUE
        label = _text(journey, "PublishedLineName") or _text(journey, "LineRef")
        destination = _text(journey, "DestinationName") or _text(journey, "DestinationDisplay")
        for kind in ("RecordedCall", "EstimatedCall"):
            for calls in _children(journey, f"{kind}s"):
                for call in _children(calls, kind):
                    with items.item():
                        yield from [*self._call(call, named, cancelled, label, destination)]

    def _call(
        self, call: Element, journey: tuple[str, ...], cancelled: bool, label: str, destination: str
    ) -> Iterator[Quad]:
        aimed = _text(call, "AimedDepartureTime")
        stop = _text(call, "StopPointRef")
        if not aimed or not stop:
            return  # the journey ends here, or passes through
        parse_instant(aimed)
        position = _text(call, "Order") or _text(call, "VisitNumber") or stop
        subject = self._iri("departures", *journey, position)
        yield Quad(subject, v.A, v.DEPARTURE)
        yield Quad(subject, v.DEPARTURE_TIME, v.date_time(aimed))
        yield Quad(subject, v.STOP, self._named("stops", stop))
        yield Quad(subject, _TRIP, self._iri("trips", journey[-1]))
        if label:
            yield Quad(subject, v.ROUTE_LABEL, literal(label))
        if head_sign := _text(call, "DestinationDisplay") or destination:
            yield Quad(subject, v.HEAD_SIGN, literal(head_sign))
        if platform := _text(call, "DeparturePlatformName"):
            yield Quad(subject, v.PLATFORM, literal(platform))
        status = _text(call, "DepartureStatus").lower()
        if cancelled or _text(call, "Cancellation") in _TRUE or status == "cancelled":
            yield Quad(subject, v.STATUS, literal("cancelled"))
            return
        actual = _text(call, "ActualDepartureTime")
        if actual or status == "departed":
            yield Quad(subject, v.STATUS, literal("departed"))
        expected = actual or _text(call, "ExpectedDepartureTime")
        planned = aimed
        if not expected and (arrives := _text(call, "AimedArrivalTime")):
            expected, planned = _text(call, "ExpectedArrivalTime"), arrives
        if expected:
            late = parse_instant(expected) - parse_instant(planned)
            yield Quad(subject, v.DELAY, integer(math.floor(late.total_seconds())))

    def _vehicle(self, journey: Element) -> Iterator[Quad]:
        vehicle = _text(journey, "VehicleRef")
        location = next(_children(journey, "VehicleLocation"), None)
        if not vehicle or location is None:
            return
        subject = self._named("vehicles", vehicle)
        latitude, longitude = _text(location, "Latitude"), _text(location, "Longitude")
        if latitude and longitude:
            yield Quad(subject, iri(GEO + "lat"), v.decimal(latitude))
            yield Quad(subject, iri(GEO + "long"), v.decimal(longitude))
        if label := _text(journey, "PublishedLineName") or _text(journey, "LineRef"):
            yield Quad(subject, v.ROUTE_LABEL, literal(label))
        if line := _text(journey, "LineRef"):
            yield Quad(subject, _ROUTE, self._named("routes", line))
        if destination := _text(journey, "DestinationName"):
            yield Quad(subject, v.HEAD_SIGN, literal(destination))
        if (named := self._reference(journey)) is not None:
            yield Quad(subject, _TRIP, self._iri("trips", named[-1]))
        if late := _text(journey, "Delay"):
            yield Quad(subject, v.DELAY, integer(_seconds(late)))
        for call in _children(journey, "MonitoredCall"):
            if stop := _text(call, "StopPointRef"):
                yield Quad(subject, v.STOP, self._named("stops", stop))

    def _reference(self, journey: Element) -> tuple[str, ...] | None:
        for framed in _children(journey, "FramedVehicleJourneyRef"):
            day = _text(framed, "DataFrameRef")
            reference = _text(framed, "DatedVehicleJourneyRef")
            if day and reference:
                date = _DAY.fullmatch(day)
                return ("".join(date.groups()) if date else day, reference)
        for name in ("DatedVehicleJourneyRef", "EstimatedVehicleJourneyCode", "VehicleJourneyRef"):
            if reference := _text(journey, name):
                return (reference,)
        return None

    def _named(self, kind: str, identifier: str) -> Term:
        return iri(identifier) if _WEB.fullmatch(identifier) else self._iri(kind, identifier)

    def _iri(self, kind: str, *parts: str) -> Term:
        return iri(f"{self._base}{kind}/{'/'.join(quote(part, safe='') for part in parts)}")


def _delivery(content: bytes, source: str) -> Element:
    root = read_xml(content, source)
    for each in root.iter():
        if _name(each) == "ServiceDelivery":
            return each
    raise InputError(f"no ServiceDelivery of SIRI in <{_name(root)}>", source)


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _children(element: Element, name: str) -> Iterator[Element]:
    return (child for child in element if _name(child) == name)


def _text(element: Element, name: str) -> str:
    return next(((child.text or "").strip() for child in _children(element, name)), "")


def _seconds(duration: str) -> int:
    match = _DURATION.fullmatch(duration)
    if match is None or duration[-1] in "PT":
        raise ValueError(f"not a duration: {duration[:40]!r}")
    sign, *parts = match.groups()
    days, hours, minutes, seconds = (int(part or 0) for part in parts)
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return -whole if sign else whole
