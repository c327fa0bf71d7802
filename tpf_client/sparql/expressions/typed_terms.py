"""The typed value of every term identifier, decoded once."""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from annotations.terms import Term
from tpf_client.sparql.expressions.values import EvaluationError, Value, term_of, value_of

_MOST: Final = 16_384

KeyT = TypeVar("KeyT")
KeptT = TypeVar("KeptT")


class Remembered(dict[KeyT, KeptT]):
    """What was computed of identifiers, so that it need not be computed again.

    It needs no term to be there: whoever looks for what holds a term passes it by.
    """

    def remember(self, key: KeyT, value: KeptT) -> None:
        """Keep a value, among the latest ones."""
        if len(self) >= _MOST:
            self.clear()
        self[key] = value


class Dictionary(Protocol):
    """Integers for terms; 0 is no term (an unbound variable)."""

    def encode(self, term: Term) -> int:
        """The identifier of a term."""

    def decode(self, identifier: int) -> Term:
        """The term of an identifier."""


class TypedTerms(Remembered[int, Value]):
    """Identifier to value: ``typed[identifier]``.

    Raises:
        EvaluationError: at a look-up of 0, which is what an unbound variable is in an expression.
    """

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__()
        self.dictionary = dictionary
        self._known: dict[object, Remembered[int, Value]] = {}

    def known(self, function: Callable[[Term], Value]) -> Remembered[int, Value]:
        """What a function of terms gave for identifiers, for all who compute it."""
        return self._known.setdefault(function, Remembered())

    def __missing__(self, identifier: int) -> Value:
        if identifier == 0:
            raise EvaluationError
        value = self[identifier] = value_of(self.dictionary.decode(identifier))
        return value

    def encode(self, value: Value) -> int:
        """The identifier of a computed value."""
        return self.dictionary.encode(term_of(value))
