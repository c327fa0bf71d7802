"""Other names for variables, and other expressions in the place of some."""

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


def replaced(expression: Expression, old: Expression, new: Expression) -> Expression:
    """An expression with another one in place of a part of it, not inside EXISTS."""
    if expression == old:
        return new
    if isinstance(expression, Call):
        return with_parts(
            expression,
            lambda part: (
                tuple([replaced(each, old, new) for each in part])
                if isinstance(part, tuple)
                else part
            ),
        )
    return expression
