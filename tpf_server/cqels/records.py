"""Elements that all look the same: a subject and one value for each of some predicates.

Rows of a table, sensor readings, trips. What they mean is a graph of as many triples; but who takes
them, and which of the values, is found out once for all, and only those values are encoded.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from annotations.terms import Term
from tpf_client.dataflow.changes import TermId
from tpf_server.cqels.dictionary import (
    DATE_TIME,
    DECIMAL,
    INTEGER,
    MOST_INTEGER,
    MOST_SCALE,
    MOST_UNSCALED,
    SCALE_BITS,
    TAG_BITS,
    InliningDictionary,
    inline_instant,
    inline_integer,
)
from tpf_server.cqels.errors import ElementError
from tpf_server.cqels.row_index import compiled
from tpf_server.cqels.timestamps import EPOCH
from tpf_server.cqels.windows.window_input import WindowInput

if TYPE_CHECKING:
    from tpf_server.cqels.engine import Engine
    from tpf_server.cqels.streams import Stream

# No number that is inlined has as many digits.
_EXACT: Final = Context(prec=100)
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
        self._takers: list[WindowInput] | None = None
        self._take: Callable[[TermId, Sequence[Value], int], None] = _unprepared

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
            self._prepare(values)
        if engine.time is None or timestamp > engine.time:
            self._dictionary.now = timestamp
        if type(subject) is not int:
            number = self._encode(subject)  # type: ignore[arg-type]
        elif self._code is None:
            number = self._encode(f"<{self._prefix}{subject}>")
        else:
            number = self._dictionary.serial(self._code, subject)
        if self._takers is None or engine.reorders or stream.counting:
            triples = [
                (number, predicate, self.value(value))
                for predicate, value in zip(self._predicates, values, strict=True)
            ]
            engine.arrive(stream, triples, timestamp)
            return
        self._take(number, values, timestamp)

    def _prepare(self, values: Sequence[Value]) -> None:
        """Find out who takes which values, and make the code for values that look like these."""
        self._version = self._stream.version
        shape = self._stream.shape(self._predicates)
        if shape is None:
            self._takers = None
            return
        self._takers = [entry for entry, _ in shape]
        columns = [place for _, place in shape]
        names: dict[str, Any] = {
            "value": self.value,
            "begin": self._engine.begin_record,
            "end": self._engine.end_arrival,
            "stream": self._stream,
            "wrong": self._wrong,
        }
        width = len(self._predicates)
        lines = [
            "def take(subject, values, at):",
            f"    if len(values) != {width}:",
            "        raise wrong(values)",
        ]
        # Every value is looked at before anything changes.
        for place in sorted({place for places in columns for place in places if place >= 0}):
            lines.append(f"    v = values[{place}]")
            lines += column_encoder(f"o{place}", values[place], self._dictionary, names)
        lines.append(f"    if begin(stream, at, {width}):")
        for number, places in enumerate(columns):
            names[f"arrive{number}"] = self._takers[number].arrive_star
            row = "".join("subject, " if place < 0 else f"o{place}, " for place in places)
            lines.append(f"        arrive{number}(at, subject, ({row}))")
        lines.append("        end()")
        self._take = compiled("\n".join(lines), "take", names)

    def _wrong(self, values: Sequence[Value]) -> ElementError:
        return ElementError(f"{len(values)} values for {len(self._predicates)} predicates")

    def value(self, value: Value) -> TermId:
        """The integer of a value."""
        encoder = _ENCODERS.get(type(value))
        if encoder is None:
            return self._encode(value)  # type: ignore[arg-type]
        found = encoder(value)
        return self._encode(_text(value)) if found is None else found


def _unprepared(_subject: TermId, _values: Sequence[Value], _at: int) -> None:
    raise AssertionError("nobody said yet who takes which values")


def column_encoder(
    target: str, example: Value, dictionary: InliningDictionary, names: dict[str, Any]
) -> list[str]:
    """Statements that encode `v`, fast where it looks like an example.

    Args:
        target: the name of the result.
        example: another value of the same column.
        dictionary: the integers of terms.
        names: takes up what the statements refer to; `value` encodes whatever there is.
    """
    careful = f"        {target} = value(v)"
    kind = type(example)
    if kind is int:
        inside = f"type(v) is int and {-MOST_INTEGER} < v < {MOST_INTEGER}"
        return [f"    {target} = v << {TAG_BITS} | {INTEGER} if {inside} else value(v)"]
    if kind is str:
        names["known"] = dictionary.known
        return [f"    {target} = type(v) is str and known(v) or value(v)"]
    if isinstance(example, datetime):
        names.update(datetime=datetime, epoch=EPOCH)
        return [
            "    d = v - epoch if type(v) is datetime and v.tzinfo is not None else None",
            "    if d is None or d.microseconds:",
            careful,
            "    else:",
            "        seconds = d.days * 86400 + d.seconds",
            f"        {target} = seconds * 1000000 << {TAG_BITS} | {DATE_TIME}",
        ]
    scale = -int(example.as_tuple().exponent) if isinstance(example, Decimal) else -1
    if not 0 <= scale <= MOST_SCALE:
        return [f"    {target} = value(v)"]
    names["Decimal"] = Decimal
    names[f"alike{scale}"] = Decimal((0, (1,), -scale)).same_quantum
    names[f"power{scale}"] = Decimal(10**scale)
    names["times"] = _EXACT.multiply
    tag = scale << TAG_BITS | DECIMAL
    return [
        # Nought may have a sign, which its integer has not.
        f"    if type(v) is Decimal and alike{scale}(v) and (v or not v.is_signed()):",
        f"        n = times(v, power{scale}).__trunc__()",
        f"        {target} = n << {SCALE_BITS + TAG_BITS} | {tag}",
        f"        if not -{MOST_UNSCALED} < n < {MOST_UNSCALED}:",
        f"    {careful}",
        "    else:",
        careful,
    ]


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
