"""Walks through algebra that change it, patterns inside EXISTS included."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tpf_client.sparql.algebra import (
    Aggregate,
    Call,
    Exists,
    Expression,
    Pattern,
    expressions_of,
    walk,
)

T = TypeVar("T")


def transformed(value: T, change: Callable[[Pattern], Pattern]) -> T:
    """A pattern or expression with `change` applied to every pattern in it, innermost first."""
    result: Any = value
    if is_dataclass(value) and not isinstance(value, type):
        changes: dict[str, Any] = {}
        for field in fields(value):
            before = getattr(value, field.name)
            after = transformed(before, change)
            if after is not before:
                changes[field.name] = after
        result = replace(value, **changes) if changes else value
        if isinstance(result, Pattern):
            result = change(result)
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):
        parts = [transformed(each, change) for each in value]
        if any(after is not before for before, after in zip(value, parts, strict=True)):
            result = tuple(parts)
    return result  # type: ignore[no-any-return]


def everywhere(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern and all patterns inside it, those in EXISTS too."""
    for each in walk(pattern):
        yield each
        for expression in expressions_of(each):
            for found in exists_in(expression):
                yield from everywhere(found.pattern)


def exists_in(expression: Expression) -> Iterator[Exists]:
    """Every EXISTS in an expression, but not those inside another one's pattern."""
    match expression:
        case Exists():
            yield expression
        case Call(_, arguments):
            for each in arguments:
                yield from exists_in(each)
        case Aggregate(_, argument) if argument is not None:
            yield from exists_in(argument)
