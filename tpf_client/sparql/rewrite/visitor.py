"""The one walk through algebra: what a pattern, an expression or a query consists of.

Trees are values: what is changed is made anew, what is not stays the same object. A *part* is
whatever something directly consists of, terms and the patterns inside EXISTS included.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tpf_client.sparql.algebra import Exists, Pattern, parts_of

T = TypeVar("T")


def everything(value: Any, but: type | tuple[()] = ()) -> Iterator[Any]:
    """A value and all parts of it and of these, outermost first, in the order of the fields.

    Args:
        value: a query, or a part of one.
        but: what is inside values of this type is left out.
    """
    waiting = [value]
    while waiting:
        each = waiting.pop()
        yield each
        if not isinstance(each, but):
            waiting.extend(reversed(parts_of(each)))


def patterns_in(value: Any) -> Iterator[Pattern]:
    """The patterns in a value, itself included, those in EXISTS too."""
    return (each for each in everything(value) if isinstance(each, Pattern))


def with_parts(value: T, change: Callable[[Any], Any]) -> T:
    """A value with every part of it replaced by what `change` makes of that; terms have none."""
    before = parts_of(value)
    after = [change(each) for each in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return value
    result: Any
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value)]
        result = replace(value, **dict(zip(names, after, strict=True)))
    else:
        result = type(value)(*after) if hasattr(value, "_fields") else tuple(after)
    return result  # type: ignore[no-any-return]


def with_children(value: T, change: Callable[[Pattern], Pattern]) -> T:
    """A pattern with the patterns directly inside it changed (not those in its expressions)."""
    return with_parts(value, lambda each: change(each) if isinstance(each, Pattern) else each)


def with_exists(value: T, change: Callable[[Pattern], Pattern]) -> T:
    """A value with the pattern of each EXISTS in it changed, innermost first."""
    result: Any = with_parts(value, lambda each: with_exists(each, change))
    if isinstance(result, Exists):
        result = with_children(result, change)
    return result  # type: ignore[no-any-return]


def transformed(value: T, change: Callable[[Pattern], Pattern]) -> T:
    """A value with every pattern in it changed, innermost first, those in EXISTS too."""
    result: Any = with_parts(value, lambda each: transformed(each, change))
    if isinstance(result, Pattern):
        result = change(result)
    return result  # type: ignore[no-any-return]
