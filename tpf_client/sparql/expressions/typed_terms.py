"""The typed value of every term identifier, decoded once."""

from typing import Protocol

from annotations.terms import Term
from tpf_client.sparql.expressions.values import EvaluationError, Value, term_of, value_of


class Dictionary(Protocol):
    """Integers for terms; 0 is no term (an unbound variable)."""

    def encode(self, term: Term) -> int:
        """The identifier of a term."""

    def decode(self, identifier: int) -> Term:
        """The term of an identifier."""


class TypedTerms(dict[int, Value]):
    """Identifier to value: ``typed[identifier]``.

    Raises:
        EvaluationError: at a look-up of 0, which is what an unbound variable is in an expression.
    """

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__()
        self.dictionary = dictionary

    def __missing__(self, identifier: int) -> Value:
        if identifier == 0:
            raise EvaluationError
        value = self[identifier] = value_of(self.dictionary.decode(identifier))
        return value

    def encode(self, value: Value) -> int:
        """The identifier of a computed value."""
        return self.dictionary.encode(term_of(value))
