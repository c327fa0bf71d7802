"""Other names for variables, and other expressions in the place of some."""

from collections.abc import Mapping
from typing import Any, TypeVar

from annotations.terms import Variable
from tpf_client.sparql.algebra import Call, Expression
from tpf_client.sparql.rewrite.visitor import with_parts

T = TypeVar("T")


def renamed(value: T, old: Variable, new: Variable) -> T:
    """A pattern or expression with one variable in place of another everywhere."""
    result: Any = value
    if isinstance(value, str):
        result = new if value == old else value
    else:
        result = with_parts(value, lambda each: renamed(each, old, new))
    return result  # type: ignore[no-any-return]


def replaced(expression: Expression, new: Mapping[Expression, Expression]) -> Expression:
    """An expression with others in place of parts of it, but of none inside EXISTS."""
    if expression in new:
        return new[expression]
    if isinstance(expression, Call):
        return with_parts(
            expression,
            lambda part: (
                tuple([replaced(each, new) for each in part]) if isinstance(part, tuple) else part
            ),
        )
    return expression
