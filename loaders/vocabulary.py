"""The terms that the loaders use; `docs/vocabularies.md` describes them."""

import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

from annotations.errors import TermError
from annotations.namespaces import RDF_TYPE, RDFS, XSD, XSD_DATE_TIME
from annotations.terms import Term, iri, literal

TRAIN = "http://example.org/train#"
SCHEMA = "http://schema.org/"
XSD_DECIMAL = XSD + "decimal"
XSD_DOUBLE = XSD + "double"

_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_SCIENTIFIC = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?[eE][+-]?[0-9]{1,2}")

A = RDF_TYPE
LABEL = Term(f"<{RDFS}label>")

DEPARTURE = iri(TRAIN + "Departure")
ROUTE_LABEL = iri(TRAIN + "routeLabel")
HEAD_SIGN = iri(TRAIN + "headSign")
DEPARTURE_TIME = iri(TRAIN + "departureTime")
STOP = iri(TRAIN + "stop")
DELAY = iri(TRAIN + "delay")
PLATFORM = iri(TRAIN + "platform")
STATUS = iri(TRAIN + "status")
CANCELLED = literal("cancelled")


def date_time(lexical: str) -> Term:
    """Return the ``xsd:dateTime`` literal of a lexical form, with its offset."""
    return literal(lexical, datatype=XSD_DATE_TIME)


def language_tag(text: str | None) -> str | None:
    """Return a tag, also of ``en_US``; ``None`` where the text is none."""
    tag = (text or "").replace("_", "-")
    try:
        literal("", tag)
    except TermError:
        return None
    return tag


def decimal(lexical: str) -> Term:
    """Return the ``xsd:decimal`` literal of a number.

    Raises:
        ValueError: it is no finite number.
    """
    if not _DECIMAL.fullmatch(lexical):
        if not _SCIENTIFIC.fullmatch(lexical):
            raise ValueError(f"not a decimal: {lexical[:40]!r}")
        lexical = format(Decimal(lexical), "f")
    return literal(lexical, datatype=XSD_DECIMAL)


PREFIXES: Mapping[str, str] = MappingProxyType(
    {"t": TRAIN, "schema": SCHEMA, "rdfs": RDFS, "xsd": XSD}
)
"""Prefix to namespace, for display."""
