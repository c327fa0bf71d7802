"""ORDER BY: sorting keys of solutions (SPARQL 1.1, section 15.1, and 1.2).

Literals without ``<`` are ordered as numbers, booleans, strings, dates, then by datatype and form.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from annotations.terms import is_triple_term, triple_of_term
from tpf_client.sparql.algebra import OrderCondition
from tpf_client.sparql.expressions.compiler import Compiler
from tpf_client.sparql.expressions.dates import EXACT, Duration, Moment, zone_seconds
from tpf_client.sparql.expressions.environment import Solution
from tpf_client.sparql.expressions.typed_terms import Remembered, TypedTerms
from tpf_client.sparql.expressions.values import (
    BlankNode,
    Iri,
    LanguageString,
    Opaque,
    Value,
    double_text,
    value_of,
)


class Descending:
    """A key whose order is turned around."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: "Descending") -> bool:
        return bool(other.key < self.key)

    def __le__(self, other: "Descending") -> bool:
        return not self.key < other.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


def value_key(value: Value) -> tuple[Any, ...]:
    """Return the sorting key of a bound value."""
    match value:
        case BlankNode(label):
            return (1, label)
        case Iri(text):
            return (2, text)
        case bool():
            return (3, 1, value)
        case int() | Decimal():
            return (3, 0, 1, value)
        case float():
            # No number comes first; the others compare with exact ones by what they print.
            return (3, 0, 1, Decimal(double_text(value))) if value == value else (3, 0, 0)
        case str():
            return (3, 2, value, "")
        case LanguageString(text, language):
            return (3, 3, language, text)
        case Moment():
            return (3, 4, type(value).__name__, zone_seconds(value, value.zone or 0))
        case Duration(months, seconds):
            return (3, 5, EXACT.fma(months, 2_629_746, seconds))
        case Opaque(term):
            if not is_triple_term(term):
                return (3, 6, term)
            return (4, *[value_key(value_of(part)) for part in triple_of_term(term)])
    raise TypeError(value)


class SortKey:
    """A sorting key of solutions; `columns` with their direction, if it is of variables alone."""

    __slots__ = ("columns", "whole")

    def __init__(
        self,
        whole: Callable[[Solution], tuple[Any, ...]],
        columns: tuple[tuple[int, bool], ...] | None,
    ) -> None:
        self.whole = whole
        self.columns = columns

    def __call__(self, solution: Solution) -> tuple[Any, ...]:
        return self.whole(solution)


def sort_key(compiler: Compiler, conditions: tuple[OrderCondition, ...]) -> SortKey:
    """Compile ORDER BY conditions."""
    parts = [
        (compiler.binding(each.expression), _Keys(compiler.typed, each.descending))
        for each in conditions
    ]
    places = [(compiler.place(each.expression), each.descending) for each in conditions]
    columns = tuple([(place, turned) for place, turned in places if place is not None])
    return SortKey(
        lambda solution: tuple([table[bind(solution)] for bind, table in parts]),
        columns if len(columns) == len(parts) else None,
    )


class _Keys(Remembered[int, tuple[Any, ...]]):
    def __init__(self, typed: TypedTerms, descending: bool) -> None:
        super().__init__()
        self._typed = typed
        self._descending = descending

    def __missing__(self, identifier: int) -> tuple[Any, ...]:
        key = value_key(self._typed[identifier]) if identifier else (0,)
        if self._descending:
            key = tuple([_turned(part) for part in key])
        self.remember(identifier, key)
        return key


def _turned(part: Any) -> Any:
    if isinstance(part, Decimal):
        return part.copy_negate()
    return -part if isinstance(part, (int, float)) else Descending(part)
