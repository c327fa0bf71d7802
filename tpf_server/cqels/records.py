"""Elements that all look the same: a subject and one value for each of some predicates.

Rows of a table, sensor readings, trips. What they mean is a graph of as many triples; but who takes
them, and which of the values, is found out once for all, and only those values are encoded.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from annotations.terms import Term
from tpf_client.dataflow.changes import TermId
from tpf_server.cqels.dictionary import (
    DECIMAL,
    SCALE_BITS,
    TAG_BITS,
    inline_instant,
    inline_integer,
)
from tpf_server.cqels.errors import ElementError

if TYPE_CHECKING:
    from tpf_server.cqels.engine import Engine
    from tpf_server.cqels.streams import Stream

_XSD = "http://www.w3.org/2001/XMLSchema#"
Value = str | int | Decimal | datetime


class RecordFeed:
    """Pushes records into a stream.

    Args:
        engine: whose stream it is.
        stream: the stream.
        predicates: IRIs, as terms, all different.
        subjects: what the IRI of a subject begins with, where subjects are given as numbers.
    """

    def __init__(
        self,
        engine: "Engine",
        stream: "Stream",
        predicates: Sequence[str],
        subjects: str | None = None,
    ) -> None:
        self._engine = engine
        self._stream = stream
        self._encode = engine.encode
        self._dictionary = engine.dictionary
        now, self._dictionary.now = self._dictionary.now, None
        self._predicates = tuple([self._encode(each) for each in predicates])
        self._dictionary.now = now
        self._prefix = subjects
        self._code = None if subjects is None else self._dictionary.register_prefix(subjects)
        self._version = -1
        self._shape: Any = None
        self._used: list[int] = []

    def push(self, subject: str | int, values: Sequence[Value], timestamp: int) -> None:
        """A record arrives.

        Args:
            subject: an IRI or blank node as a term, or its number.
            values: one for each predicate: a term (N-Triples), or a Python value: ``int``,
                ``Decimal`` (with its digits), ``datetime`` (with a time zone).
            timestamp: milliseconds since 1970.

        Raises:
            ElementError: a value that cannot be a term, or too few of them.
        """
        engine = self._engine
        stream = self._stream
        if self._version != stream.version:
            self._prepare()
        if engine.time is None or timestamp > engine.time:
            self._dictionary.now = timestamp
        if type(subject) is int:
            if self._code is None:
                number = self._encode(f"<{self._prefix}{subject}>")
            else:
                number = self._dictionary.serial(self._code, subject)
        else:
            number = self._encode(subject)  # type: ignore[arg-type]
        encode = self.value
        if self._shape is None or engine.reorders or stream.counting:
            triples = [
                (number, predicate, encode(value))
                for predicate, value in zip(self._predicates, values, strict=True)
            ]
            engine.arrive(stream, triples, timestamp)
            return
        objects: list[TermId] = [0] * len(self._predicates)
        for place in self._used:
            objects[place] = encode(values[place])
        engine.arrive_record(stream, self._shape, number, objects, timestamp)

    def _prepare(self) -> None:
        self._version = self._stream.version
        self._shape = self._stream.shape(self._predicates)
        used = set()
        for entry, _ in self._shape or ():
            used |= {self._predicates.index(each) for each in entry.matcher.predicates}
        self._used = sorted(used)

    def value(self, value: Value) -> TermId:
        """The integer of a value."""
        encoder = _ENCODERS.get(type(value))
        if encoder is None:
            return self._encode(value)  # type: ignore[arg-type]
        found = encoder(value)
        return self._encode(_text(value)) if found is None else found


def _decimal(value: Decimal) -> TermId | None:
    text = str(value)
    whole, _, fraction = text.partition(".")
    if len(text) > 17 or "E" in text or not (whole and text.isascii() and whole[-1].isdigit()):
        return None
    unscaled = int(whole + fraction)
    if not unscaled and text[0] == "-":
        return None
    return ((unscaled << SCALE_BITS | len(fraction)) << TAG_BITS) | DECIMAL


def _instant(value: datetime) -> TermId | None:
    if value.tzinfo is None:
        raise ElementError(f"without a time zone: {value}")
    return inline_instant(value)


def _text(value: Value) -> Term:
    if isinstance(value, datetime):
        text = f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}".rstrip("0").rstrip(".")
        return Term(f'"{text}Z"^^<{_XSD}dateTime>')
    kind = "integer" if isinstance(value, int) else "decimal"
    return Term(
        f'"{value:f}"^^<{_XSD}{kind}>' if kind == "decimal" else f'"{value}"^^<{_XSD}{kind}>'
    )


_ENCODERS: dict[type, Callable[[Any], TermId | None]] = {
    int: inline_integer,
    Decimal: _decimal,
    datetime: _instant,
}
