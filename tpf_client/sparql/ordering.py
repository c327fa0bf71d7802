"""ORDER BY: sorting keys of solutions.

Source: SPARQL 1.1 Query Language, section 15.1: unbound before blank nodes before IRIs before
literals. Among literals that ``<`` does not compare the order is ours: numbers, booleans, strings,
dates and times, then the rest by datatype and lexical form.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tpf_client.sparql.algebra import OrderCondition
from tpf_client.sparql.expressions.compiler import Compiler, Solution
from tpf_client.sparql.expressions.dates import Date, DateTime, Duration, Time, local_seconds
from tpf_client.sparql.expressions.values import (
    BlankNode,
    Iri,
    LanguageString,
    Opaque,
    Value,
    decimal_of_float,
)

# Queries that run for long meet new values for ever.
_REMEMBERED = 100_000


class Descending:
    """A key whose order is turned around."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: "Descending") -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


def value_key(value: Value) -> tuple[Any, ...]:
    """What to sort a bound value by."""
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
            if value != value:
                return (3, 0, 0)
            infinite = value in (float("inf"), float("-inf"))
            return (3, 0, 1, value if infinite else decimal_of_float(value))
        case str():
            return (3, 2, value, "")
        case LanguageString(text, language):
            return (3, 3, language, text)
        case DateTime() | Date() | Time():
            seconds = local_seconds(value) - (value.zone or 0) * 60
            return (3, 4, type(value).__name__, seconds)
        case Duration(months, seconds):
            return (3, 5, months * Decimal("2629746") + seconds)
        case Opaque(term):
            return (4, term) if term.startswith("<<") else (3, 6, term)
    raise TypeError(value)


def sort_key(
    compiler: Compiler, conditions: tuple[OrderCondition, ...]
) -> Callable[[Solution], tuple[Any, ...]]:
    """A function from solutions to keys that sort as the conditions say."""
    parts = [
        (compiler.binding(each.expression), _remembering(compiler, each.descending))
        for each in conditions
    ]

    def key(solution: Solution) -> tuple[Any, ...]:
        return tuple([key_of(bind(solution)) for bind, key_of in parts])

    return key


def _remembering(compiler: Compiler, descending: bool) -> Callable[[int], tuple[Any, ...]]:
    """Keys of identifiers, the latest of them remembered."""
    typed = compiler.typed
    known: dict[int, tuple[Any, ...]] = {}

    def key_of(identifier: int) -> tuple[Any, ...]:
        key = known.get(identifier)
        if key is None:
            key = value_key(typed[identifier]) if identifier else (0,)
            if descending:
                key = tuple([_turned(part) for part in key])
            if len(known) == _REMEMBERED:
                known.clear()
            known[identifier] = key
        return key

    return key_of


def _turned(part: Any) -> Any:
    """A part of a key whose order is turned around; numbers stay numbers, which compare fast."""
    if isinstance(part, Decimal):
        return part.copy_negate()
    return -part if isinstance(part, (int, float)) else Descending(part)
