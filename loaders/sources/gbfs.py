"""GBFS 2 and 3: stations of shared bicycles and other vehicles, how many are free, and where.

A document holds for its `ttl`: that is how long its facts are labelled, and when it is read next.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from annotations.errors import InstantError
from annotations.instants import parse_instant
from annotations.namespaces import XSD, integer
from annotations.terms import Quad, Term, iri, literal
from loaders import vocabulary as v
from loaders.errors import InputError
from loaders.places import parsed_json
from loaders.sources.base import Items, last_values
from loaders.sources.gtfs import GEO

GBFS: Final = "https://w3id.org/gbfs#"
GBFS_BASE: Final = "http://example.org/gbfs/"
_LONGEST: Final = 86_400
"""Seconds that a document holds at most, and between two polls."""


def _boolean(value: Any) -> Term:
    # Before version 2, 0 and 1.
    if value not in (True, False):
        raise ValueError(f"neither true nor false: {value!r}")
    return literal("true" if value else "false", datatype=XSD + "boolean")


def _whole(value: Any) -> Term:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError(f"not a whole number: {value!r}")
    return integer(int(value))


def _number(value: Any) -> Term:
    return v.decimal(repr(value) if isinstance(value, float) else str(value))


def _name(value: Any) -> Term:
    # From version 3 on, in languages; one of them is a fact's only version.
    first = value[0] if isinstance(value, list) else value
    if isinstance(first, dict):
        return literal(first["text"], language=v.language_tag(first.get("language")))
    return literal(str(first))


def _identifier(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"no identifier: {value!r}")
    return quote(str(value), safe="")


_Maker = Callable[[Any], Term]
_PLACE: Final[dict[str, tuple[str, _Maker]]] = {
    "lat": (GEO + "lat", _number),
    "lon": (GEO + "long", _number),
}
_STATION: Final[dict[str, tuple[str, _Maker]]] = {
    **_PLACE,
    "name": (v.LABEL[1:-1], _name),
    "capacity": (GBFS + "capacity", _whole),
    "num_bikes_available": (GBFS + "bikes_available", _whole),
    "num_vehicles_available": (GBFS + "bikes_available", _whole),
    "num_bikes_disabled": (GBFS + "bikes_disabled", _whole),
    "num_vehicles_disabled": (GBFS + "bikes_disabled", _whole),
    "num_docks_available": (GBFS + "docks_available", _whole),
    "num_docks_disabled": (GBFS + "docks_disabled", _whole),
    **{name: (GBFS + name, _boolean) for name in ("is_installed", "is_renting", "is_returning")},
}
_VEHICLE: Final[dict[str, tuple[str, _Maker]]] = {
    **_PLACE,
    "current_range_meters": (GBFS + "current_range_meters", _number),
    **{name: (GBFS + name, _boolean) for name in ("is_reserved", "is_disabled")},
}
_KINDS: Final = {
    "stations": ("Station", "station_id", _STATION),
    "bikes": ("Vehicle", "bike_id", _VEHICLE),
    "vehicles": ("Vehicle", "vehicle_id", _VEHICLE),
}


class Gbfs:
    """Reads station information and status, and the status of vehicles."""

    name = "gbfs"
    suffix = ".json"

    def __init__(self, base: str = GBFS_BASE) -> None:
        self._base = base

    def read(self, content: bytes, source: str) -> Sequence[Quad]:
        data = _document(content, source).get("data")
        kind = next((each for each in _KINDS if isinstance(data, dict) and each in data), None)
        if kind is None or not isinstance(data, dict):
            raise InputError(f"{_what_it_is(data)}, but neither {' nor '.join(_KINDS)}", source)
        if not isinstance(data[kind], list):
            raise InputError(f"a malformed GBFS document (its {kind} are no list)", source)
        items = Items("GBFS document", source)
        quads: list[Quad] = []
        for thing in data[kind]:
            with items.item():
                quads += [*self._quads(kind, thing)]
        # What is listed twice has one version.
        return items.result(last_values(quads))

    def instant(self, content: bytes, source: str) -> datetime:
        updated = _document(content, source).get("last_updated")
        try:
            if isinstance(updated, int):
                return datetime.fromtimestamp(updated, UTC)
            return parse_instant(str(updated))
        except (InstantError, ValueError, OverflowError, OSError):
            raise InputError(f"a GBFS document of no instant: {updated!r}", source) from None

    def lasting(self, content: bytes, source: str) -> timedelta:
        seconds = _document(content, source).get("ttl")
        if not isinstance(seconds, int) or not seconds >= 0:
            raise InputError(f"its ttl is no number of seconds: {seconds!r}", source)
        return timedelta(seconds=min(max(seconds, 1), _LONGEST))

    def _quads(self, kind: str, thing: dict[str, Any]) -> Iterator[Quad]:
        named, identifier, fields = _KINDS[kind]
        subject = iri(f"{self._base}{named.lower()}s/{_identifier(thing[identifier])}")
        yield Quad(subject, v.A, iri(GBFS + named))
        for name, (predicate, maker) in fields.items():
            if (value := thing.get(name)) not in (None, []):
                yield Quad(subject, iri(predicate), maker(value))
        if kind != "stations" and (station := thing.get("station_id")) not in (None, ""):
            at = iri(f"{self._base}stations/{_identifier(station)}")
            yield Quad(subject, iri(GBFS + "station"), at)


def _document(content: bytes, source: str) -> Mapping[str, Any]:
    document = parsed_json(content, source)
    if not isinstance(document, dict):
        raise InputError("not a GBFS document: no object", source)
    return document


def _what_it_is(data: Any) -> str:
    """Name the documents that a list of feeds leads to."""
    lists = [data, *data.values()] if isinstance(data, dict) else []
    found = [each["feeds"] for each in lists if isinstance(each, dict) and "feeds" in each]
    if not found or not isinstance(found[0], list):
        return "a GBFS document"
    urls = [str(each.get("url")) for each in found[0] if isinstance(each, dict)]
    return f"a list of feeds ({', '.join(urls)[:500]})"
