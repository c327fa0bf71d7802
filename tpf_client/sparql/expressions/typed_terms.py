"""The typed value of every term identifier, decoded once."""

from collections.abc import Callable
from decimal import Decimal
from typing import Final, Protocol, TypeVar

from annotations.terms import Term
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.inlined import (
    BOOLEAN,
    DATE_TIME,
    DECIMAL,
    FALSE_ID,
    INTEGER,
    TAG,
    TAG_BITS,
    TRUE_ID,
    datetime_of,
    decimal_of,
    inline_decimal,
    inline_integer,
)
from tpf_client.sparql.expressions.values import EvaluationError, Value, term_of, value_of

_MOST: Final = 16_384

KeyT = TypeVar("KeyT")
KeptT = TypeVar("KeptT")


class Remembered(dict[KeyT, KeptT]):
    """A cache by identifier, which does not count as holding terms."""

    def remember(self, key: KeyT, value: KeptT) -> None:
        if len(self) >= _MOST:
            self.clear()
        self[key] = value


class TermCodec(Protocol):
    """Integers for terms; 0 is unbound."""

    def encode(self, term: Term) -> int:
        """The identifier of a term."""

    def decode(self, identifier: int) -> Term:
        """The term of an identifier."""

    def on_forget(self, forget: Callable[[list[int]], None]) -> None:
        """Call `forget` with the identifiers of dropped terms."""


class TypedTerms(Remembered[int, Value]):
    """Map identifiers to values, cached for terms in the table.

    0 (unbound) raises an `EvaluationError`.
    """

    def __init__(self, dictionary: TermCodec) -> None:
        super().__init__()
        self.dictionary = dictionary
        dictionary.on_forget(self._forget)

    def __missing__(self, identifier: int) -> Value:
        tag = identifier & TAG
        if tag == INTEGER:
            return identifier >> TAG_BITS
        if tag == DECIMAL:
            return decimal_of(identifier)
        if tag == BOOLEAN:
            return identifier == TRUE_ID
        if identifier == 0:
            raise EvaluationError
        if tag == DATE_TIME:
            # Nor are dates remembered: a stream brings new ones for ever.
            at = datetime_of(identifier)
            return DateTime(at.year, at.month, at.day, at.hour, at.minute, Decimal(at.second), 0)
        value = value_of(self.dictionary.decode(identifier))
        if not tag:
            # Nothing forgets what has no entry in the table.
            self[identifier] = value
        return value

    def encode(self, value: Value) -> int:
        kind = type(value)
        if kind is int:
            inlined = inline_integer(value)  # type: ignore[arg-type]
            if inlined is not None:
                return inlined
        elif kind is Decimal:
            inlined = inline_decimal(value)  # type: ignore[arg-type]
            if inlined is not None:
                return inlined
        elif kind is bool:
            return TRUE_ID if value else FALSE_ID
        return self.dictionary.encode(term_of(value))

    def _forget(self, identifiers: list[int]) -> None:
        for identifier in identifiers:
            self.pop(identifier, None)
