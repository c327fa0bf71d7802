"""Conditions that compare a value of a solution with a constant of a query."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from annotations.terms import Term, Variable
from tpf_client.dataflow.arithmetic import ArithmeticCompiler
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.sparql.algebra import Call, Constant, Expression, VariableRef
from tpf_client.sparql.expressions.environment import Environment
from tpf_server.continuous.engine.plans.constant_index import MIRRORED

_SIDES = (Variable("?.value"), Variable("?.constant"))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition that compares a value of a solution with the constant of a query.

    Args:
        operator: how.
        variable: what stands for the constant.
        value: the value of a solution.
        test: whether a value and a constant compare.
    """

    operator: str
    variable: Variable
    value: Callable[[Solution], TermId]
    test: Callable[[Solution], bool]


def lifted_variable(number: int) -> Variable:
    """The variable that stands for a constant."""
    return Variable(f"?.c{number}")


def comparison_in(condition: Expression) -> tuple[str, Expression, Term] | None:
    """The operator, the value and the constant of a condition that compares with one."""
    match condition:
        case Call(operator, (left, Constant(term))) if operator in MIRRORED and not isinstance(
            left, Constant
        ):
            return operator, left, term
        case Call(operator, (Constant(term), left)) if operator in MIRRORED and not isinstance(
            left, Constant
        ):
            return MIRRORED[operator], left, term
    return None


def comparison(
    condition: Expression, schema: Sequence[Variable], environment: Environment
) -> Comparison:
    """A condition between a value and the variable that stands for a constant.

    Args:
        condition: it.
        schema: of the solutions.
        environment: what expressions depend on.
    """
    match condition:
        case Call(operator, (left, VariableRef(variable))):
            whole = Call(operator, tuple(map(VariableRef, _SIDES)))
            test = ArithmeticCompiler(environment, _SIDES).condition(whole)
            value = ArithmeticCompiler(environment, schema).binding(left)
            return Comparison(operator, variable, value, test)
    raise AssertionError(condition)
