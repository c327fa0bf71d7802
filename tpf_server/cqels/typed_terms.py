"""Typed values of an engine's terms: inlined ones come straight from the integer."""

from decimal import Decimal

from tpf_client.dataflow.changes import TermId
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.expressions.values import Value, value_of
from tpf_server.cqels.dictionary import (
    BOOLEAN,
    DECIMAL,
    INTEGER,
    TAG,
    TAG_BITS,
    InliningDictionary,
    decimal_of,
    inline_decimal,
    inline_integer,
)


class InliningTypedTerms(TypedTerms):
    """Identifier to value; only values of terms in the table are remembered."""

    def __init__(self, dictionary: InliningDictionary) -> None:
        super().__init__(dictionary)
        dictionary.on_forget(self._forget)

    def __missing__(self, identifier: TermId) -> Value:
        tag = identifier & TAG
        if tag == INTEGER:
            return identifier >> TAG_BITS
        if tag == DECIMAL:
            return decimal_of(identifier)
        if tag == BOOLEAN:
            return bool(identifier >> TAG_BITS)
        if tag:
            # Dates are not remembered either: a stream brings new ones for ever.
            return value_of(self.dictionary.decode(identifier))
        return super().__missing__(identifier)

    def encode(self, value: Value) -> TermId:
        """The identifier of a computed value."""
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
            return (1 << TAG_BITS | BOOLEAN) if value else BOOLEAN
        return super().encode(value)

    def _forget(self, identifiers: list[TermId]) -> None:
        for identifier in identifiers:
            self.pop(identifier, None)
        for known in self._known.values():
            known.clear()
