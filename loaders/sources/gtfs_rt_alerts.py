"""Service alerts of GTFS Realtime, as statements with one value per property.

So they can be published to datasets that keep one value of a property at a time: what an alert is
about are things of their own, and a text is told in one language.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from google.transit import gtfs_realtime_pb2 as rt

from annotations.errors import TermError
from annotations.instants import format_instant, from_micros, to_micros
from annotations.namespaces import RDFS
from annotations.terms import Quad, Term, iri, literal
from loaders import vocabulary as v
from loaders.sources.gtfs import GTFS, Gtfs

_CLASS = iri(v.TRAIN + "Alert")
_AFFECTED = iri(v.TRAIN + "Affected")
_ALERT = iri(v.TRAIN + "alert")
_COMMENT = iri(RDFS + "comment")
_ENUMERATIONS = (
    ("cause", rt.Alert.Cause),
    ("effect", rt.Alert.Effect),
    ("severity_level", rt.Alert.SeverityLevel),
)
_LAST = 253_370_764_799
"""The end of the year 9998, in seconds since 1970: beyond it no label could end."""


def alert_quads(
    names: Gtfs, entity: str, alert: Any, at: datetime, language: str | None
) -> Iterator[Quad]:
    """What an alert says; nothing where all its periods are over.

    Args:
        names: of what it is about.
        entity: the identifier of the alert.
        alert: the message.
        at: when it is told.
        language: which of the texts to tell; else the first.
    """
    now = to_micros(at) // 1_000_000
    periods = sorted((each.start, each.end or _LAST + 1) for each in alert.active_period)
    coming = [period for period in periods if period[1] > now]
    if periods and not coming:
        return
    subject = names.iri("alerts", entity)
    yield Quad(subject, v.A, _CLASS)
    for text, predicate in ((alert.header_text, v.LABEL), (alert.description_text, _COMMENT)):
        if (found := _text(text, language)) is not None:
            yield Quad(subject, predicate, found)
    if (url := _text(alert.url, language)) is not None:
        yield Quad(subject, iri(v.SCHEMA + "url"), url)
    for field, enumeration in _ENUMERATIONS:
        if alert.HasField(field):
            name = enumeration.Name(getattr(alert, field)).lower()
            yield Quad(subject, iri(v.TRAIN + field.partition("_")[0]), literal(name))
    if coming:
        # The period in which it is active, or the one that comes next.
        for name, second in zip(("startDate", "endDate"), coming[0], strict=True):
            if 0 < second <= _LAST:
                instant = format_instant(from_micros(second * 1_000_000))
                yield Quad(subject, iri(v.SCHEMA + name), v.date_time(instant))
    for number, informed in enumerate(alert.informed_entity):
        node = names.iri("alerts", entity, str(number))
        yield Quad(node, v.A, _AFFECTED)
        yield Quad(node, _ALERT, subject)
        for kind, name, identifier in (
            ("agencies", "agency", informed.agency_id),
            ("routes", "route", informed.route_id or informed.trip.route_id),
            ("trips", "trip", informed.trip.trip_id),
            ("stops", "stop", informed.stop_id),
        ):
            if identifier:
                yield Quad(node, iri(GTFS + name), names.iri(kind, identifier))


def _text(translated: Any, language: str | None) -> Term | None:
    """One of the translations: in the language, else without one, else the first."""
    texts = list(translated.translation)
    if not texts:
        return None
    wanted = (language or "").lower()

    def rank(each: Any) -> int:
        said = each.language.lower()
        if said == wanted:
            return 0
        if wanted and said.partition("-")[0] == wanted.partition("-")[0]:
            return 1
        return 2 if not said else 3

    chosen = min(texts, key=rank)
    try:
        return literal(chosen.text, language=chosen.language or None)
    except TermError:
        return literal(chosen.text)
