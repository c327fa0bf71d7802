"""Terms as integers: small values inside the integer, everything else through a table.

The three lowest bits are a tag:

===  =======================  ==============================================================
0    a number of the table    the rest is its position
1    ``xsd:integer``          the rest is the value
2    ``xsd:decimal``          five bits of scale, the rest is the unscaled value
3    ``xsd:dateTime``         the rest is microseconds since 1970 (with ``Z``, whole seconds)
4    ``xsd:boolean``          the rest is 0 or 1
5    an IRI that ends in a    eight bits say which registered beginning, the rest is the number
     number
===  =======================  ==============================================================

A term is inlined only where its text can be had back exactly (``"042"`` goes through the table),
and where the integer fits into 64 bits; decimals may take 104, because quotients have 18 digits
behind the point, and a longer integer costs far less than an entry of the table. The same term
always has the same integer, so equality of terms is equality of integers. Source: paper 000,
section 4.2.

The table forgets: a stream brings new terms for ever, and those that nothing holds any more are
dropped (see `forgetting`). Positions are never given twice.
"""

import re
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from annotations.terms import Term
from tpf_client.dataflow.changes import TermDictionary, TermId

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_INTEGER: Final = f'"^^<{_XSD}integer>'
_DECIMAL: Final = f'"^^<{_XSD}decimal>'
_DATE_TIME: Final = f'"^^<{_XSD}dateTime>'
_TRUE: Final = Term(f'"true"^^<{_XSD}boolean>')
_FALSE: Final = Term(f'"false"^^<{_XSD}boolean>')

TAG_BITS: Final = 3
TAG: Final = 0b111
INTEGER: Final = 1
DECIMAL: Final = 2
DATE_TIME: Final = 3
BOOLEAN: Final = 4
SERIAL: Final = 5
_PREFIX_BITS: Final = 8
SCALE_BITS: Final = 5
_SCALE: Final = 0b11111
MOST_INTEGER: Final = 1 << 60
MOST_UNSCALED: Final = 1 << 96
MOST_SERIAL: Final = 10**15
MOST_SCALE: Final = 31

_INTEGER_TEXT = re.compile(r"0|-?[1-9]\d{0,18}")
_DECIMAL_TEXT = re.compile(r"(-?)(0|[1-9]\d{0,28})(?:\.(\d{1,31}))?")
_DATE_TEXT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_SERIAL_TEXT = re.compile(r"<(.*?)(0|[1-9]\d{0,14})>")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def inline_integer(value: int) -> TermId | None:
    """The integer of an ``xsd:integer``; ``None`` where it does not fit."""
    return value << TAG_BITS | INTEGER if -MOST_INTEGER < value < MOST_INTEGER else None


def inline_decimal(value: Decimal) -> TermId | None:
    """The integer of a computed ``xsd:decimal``; ``None`` where it does not fit.

    Its text is canonical: no exponent and no trailing zeros.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) + max(exponent, 0) > 40:
        return None
    unscaled = 0
    for digit in digits:
        unscaled = unscaled * 10 + digit
    while exponent < 0 and not unscaled % 10:
        unscaled //= 10
        exponent += 1
    if exponent > 0:
        unscaled *= 10**exponent
        exponent = 0
    if unscaled >= MOST_UNSCALED or exponent < -MOST_SCALE:
        return None
    return (((-unscaled if sign else unscaled) << SCALE_BITS | -exponent) << TAG_BITS) | DECIMAL


def written_decimal(text: str) -> TermId | None:
    """The integer of an ``xsd:decimal`` with exactly this text; ``None`` where it does not fit."""
    match = _DECIMAL_TEXT.fullmatch(text)
    if match is None:
        return None
    minus, whole, fraction = match.groups(default="")
    unscaled = int(whole + fraction)
    if unscaled >= MOST_UNSCALED or (minus and not unscaled):
        return None
    signed = -unscaled if minus else unscaled
    return ((signed << SCALE_BITS | len(fraction)) << TAG_BITS) | DECIMAL


def inline_instant(instant: datetime) -> TermId | None:
    """The integer of an ``xsd:dateTime`` in UTC; ``None`` where it has fractions of a second."""
    if instant.microsecond:
        return None
    return ((instant - _EPOCH) // _MICROSECOND) << TAG_BITS | DATE_TIME


def inlined_literal(term: str) -> TermId | None:
    """The integer that holds this literal; ``None`` where it must go through the table."""
    if term.endswith(_INTEGER):
        text = term[1 : -len(_INTEGER)]
        return inline_integer(int(text)) if _INTEGER_TEXT.fullmatch(text) else None
    if term.endswith(_DECIMAL):
        return written_decimal(term[1 : -len(_DECIMAL)])
    if term.endswith(_DATE_TIME):
        text = term[1 : -len(_DATE_TIME)]
        if not _DATE_TEXT.fullmatch(text):
            return None
        try:
            instant = datetime.fromisoformat(text)
        except ValueError:
            return None
        return inline_instant(instant)
    if term == _TRUE:
        return 1 << TAG_BITS | BOOLEAN
    if term == _FALSE:
        return 0 << TAG_BITS | BOOLEAN
    return None


def decimal_of(identifier: TermId) -> Decimal:
    """The value of an inlined ``xsd:decimal``."""
    rest = identifier >> TAG_BITS
    return Decimal(rest >> SCALE_BITS).scaleb(-(rest & _SCALE))


def _text_of_decimal(identifier: TermId) -> str:
    rest = identifier >> TAG_BITS
    unscaled, scale = rest >> SCALE_BITS, rest & _SCALE
    if not scale:
        return str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


class _Texts(dict[TermId, Term]):
    """The terms of the table; the texts of inlined values are made when asked for."""

    def __init__(self, prefixes: Sequence[str]) -> None:
        super().__init__()
        self._prefixes = prefixes

    def __missing__(self, identifier: TermId) -> Term:
        tag = identifier & TAG
        if tag == INTEGER:
            return Term(f'"{identifier >> TAG_BITS}{_INTEGER}')
        if tag == DECIMAL:
            return Term(f'"{_text_of_decimal(identifier)}{_DECIMAL}')
        if tag == DATE_TIME:
            instant = _EPOCH + timedelta(microseconds=identifier >> TAG_BITS)
            return Term(f'"{instant.replace(tzinfo=None).isoformat()}Z{_DATE_TIME}')
        if tag == SERIAL:
            rest = identifier >> TAG_BITS
            prefix = self._prefixes[rest & ((1 << _PREFIX_BITS) - 1)]
            return Term(f"<{prefix}{rest >> _PREFIX_BITS}>")
        if tag == BOOLEAN:
            return _TRUE if identifier >> TAG_BITS else _FALSE
        raise KeyError(identifier)


class InliningDictionary(TermDictionary):
    """Integers for the terms of an engine.

    Attributes:
        texts: the term of each integer, those of inlined values included (never of `UNBOUND`); only
            to be read.
        known: the integer of a term that is in the table, else ``None``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._keeps = False
        self._numbers: dict[str, TermId] = {}
        self._passing: set[TermId] = set()
        self._next = 1
        self._prefixes: list[str] = []
        self.texts: dict[TermId, Term] = _Texts(self._prefixes)
        self.known: Callable[[str], TermId | None] = self._numbers.get
        self._forgetters: list[Callable[[list[TermId]], None]] = []

    def encode(self, term: Term) -> TermId:
        """The integer of a term, a new one where it is new."""
        found = self._numbers.get(term)
        if found is not None:
            if self._keeps:
                self._passing.discard(found)
            return found
        if term[0] == '"':
            inlined = inlined_literal(term)
            if inlined is not None:
                return inlined
        elif self._prefixes and term[0] == "<":
            match = _SERIAL_TEXT.fullmatch(term)
            if match is not None and match.group(1) in self._prefixes:
                return self.serial(self._prefixes.index(match.group(1)), int(match.group(2)))
        found = self._next << TAG_BITS
        self._next += 1
        self._numbers[term] = found
        self.texts[found] = term
        if not self._keeps:
            self._passing.add(found)
        return found

    def register_prefix(self, prefix: str) -> int | None:
        """Let IRIs that are `prefix` and a number be inlined; returns the code for `serial`.

        ``None`` where some of them are in the table already, or where too many are registered.
        """
        if prefix in self._prefixes:
            return self._prefixes.index(prefix)
        beginning = f"<{prefix}"
        if len(self._prefixes) == 1 << _PREFIX_BITS or any(
            term.startswith(beginning) for term in self._numbers
        ):
            return None
        self._prefixes.append(prefix)
        return len(self._prefixes) - 1

    def serial(self, prefix: int, number: int) -> TermId:
        """The integer of the IRI that is a registered prefix and a number."""
        return ((number << _PREFIX_BITS | prefix) << TAG_BITS) | SERIAL

    def decode(self, identifier: TermId) -> Term:
        """The term of an integer (never of `UNBOUND`)."""
        return self.texts[identifier]

    def __len__(self) -> int:
        """How many terms the table holds."""
        return len(self.texts)

    @property
    def passing(self) -> int:
        """How many terms of the table came with a stream, or were computed."""
        return len(self._passing)

    @property
    def lasting(self) -> int:
        """How many terms of the table are of static data or queries."""
        return len(self.texts) - len(self._passing)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Terms that are looked up meanwhile are of static data or queries."""
        before, self._keeps = self._keeps, True
        try:
            yield
        finally:
            self._keeps = before

    @property
    def tables(self) -> tuple[object, ...]:
        """Where its terms are, which therefore hold none."""
        return self._numbers, self._passing, self.texts

    def forget(self, held: Set[TermId], *, everything: bool = False) -> int:
        """Drop the terms that are not held; returns how many.

        Args:
            held: integers of terms, and others.
            everything: also those of static data and queries.
        """
        stale = [each for each in (self.texts if everything else self._passing) if each not in held]
        for number in stale:
            del self._numbers[self.texts.pop(number)]
        self._passing.difference_update(stale)
        if stale:
            for forget in self._forgetters:
                forget(stale)
        return len(stale)

    def on_forget(self, forget: Callable[[list[TermId]], None]) -> None:
        """Call `forget` with the integers of terms that are dropped."""
        self._forgetters.append(forget)
