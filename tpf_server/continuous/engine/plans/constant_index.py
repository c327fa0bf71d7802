"""Index constants by the comparisons that they have with a value."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

from annotations.terms import Term, Variable
from tpf_client.dataflow.arithmetic import ArithmeticCompiler
from tpf_client.dataflow.changes import UNBOUND, Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import Call, Constant, Expression, VariableRef
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.inlined import (
    DECIMAL,
    INTEGER,
    SERIAL,
    TAG,
    TAG_BITS,
    decimal_of,
)

_Number: TypeAlias = int | Decimal
MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons that the index answers, each with its form with exchanged sides."""


class ConstantIndex:
    """The constants c of queries for which ``value operator c`` is true.

    Integers and decimals, whose order Python knows exactly, are in a sorted list; IRIs are looked
    up; other constants, and all where the value is another literal, are tried.
    """

    def __init__(
        self, operator: str, test: Callable[[Solution], bool], dictionary: TermDictionary
    ) -> None:
        self.tried = 0
        self._operator = operator
        self._test = test
        self._dictionary = dictionary
        self._queries: dict[TermId, dict[int, None]] = {}
        self._numbers: list[tuple[_Number, TermId]] = []
        self._literals: dict[TermId, None] = {}

    def add(self, constant: TermId, query: int) -> None:
        """Add the constant of a query."""
        queries = self._queries.get(constant)
        if queries is None:
            queries = self._queries[constant] = {}
            number = self._number(constant)
            if number is not None:
                insort(self._numbers, (number, constant))
            elif not self._named(constant):
                self._literals[constant] = None
        queries[query] = None

    def remove(self, constant: TermId, query: int) -> None:
        """Remove the constant of a query."""
        queries = self._queries[constant]
        del queries[query]
        if queries:
            return
        del self._queries[constant]
        number = self._number(constant)
        if number is not None:
            del self._numbers[bisect_left(self._numbers, (number, constant))]
        else:
            self._literals.pop(constant, None)

    def queries(self, value: TermId) -> list[int]:
        """Return the queries whose constants compare."""
        found: list[int] = []
        queries = self._queries
        for constant in self._constants(value):
            found += queries[constant]
        return found

    def _constants(self, value: TermId) -> list[TermId]:
        if value == UNBOUND:
            return []
        if self._named(value):
            # Nothing else is equal to it, and it has no order.
            return [value] if self._operator == "=" and value in self._queries else []
        number = self._number(value)
        tried: list[TermId] = list(self._literals)
        if number is None:
            tried += [constant for _, constant in self._numbers]
            found = []
        else:
            found = self._ordered(number)
        self.tried += len(tried)
        return found + [constant for constant in tried if self._test((value, constant))]

    def _ordered(self, value: _Number) -> list[TermId]:
        numbers = self._numbers
        first = bisect_left(numbers, value, key=_number_of)
        last = bisect_right(numbers, value, key=_number_of)
        begin, end = {
            "=": (first, last),
            "<": (last, None),
            "<=": (first, None),
            ">": (0, first),
            ">=": (0, last),
        }[self._operator]
        return [constant for _, constant in numbers[begin:end]]

    def _number(self, identifier: TermId) -> _Number | None:
        tag = identifier & TAG
        if tag == INTEGER:
            return identifier >> TAG_BITS
        return decimal_of(identifier) if tag == DECIMAL else None

    def _named(self, identifier: TermId) -> bool:
        """True for an IRI or a blank node."""
        tag = identifier & TAG
        if tag:
            return tag == SERIAL
        text = self._dictionary.texts[identifier]
        return text[0] == "_" or (text[0] == "<" and text[1] != "<")


def _number_of(entry: tuple[_Number, TermId]) -> _Number:
    return entry[0]


# Conditions that compare a value of a solution with a constant of a query.

_SIDES = (Variable("?.value"), Variable("?.constant"))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition that compares a value of a solution with the constant of a query."""

    operator: str
    variable: Variable
    value: Callable[[Solution], TermId]
    test: Callable[[Solution], bool]


def lifted_variable(number: int) -> Variable:
    """Return the variable that stands for a constant."""
    return Variable(f"?.c{number}")


def comparison_in(condition: Expression) -> tuple[str, Expression, Term] | None:
    """Return operator, value and constant of a condition that compares with one."""
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
    """Return a condition between a value and the variable that stands for a constant."""
    match condition:
        case Call(operator, (left, VariableRef(variable))):
            whole = Call(operator, tuple(map(VariableRef, _SIDES)))
            test = ArithmeticCompiler(environment, _SIDES).condition(whole)
            value = ArithmeticCompiler(environment, schema).binding(left)
            return Comparison(operator, variable, value, test)
    raise AssertionError(condition)
