"""Assign solutions to the queries whose constants compare with them, by an index of these."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf
from typing import Any, Final, Generic, TypeAlias, TypeVar

from annotations.terms import Term, Variable
from tpf_client.dataflow.changes import UNBOUND, Solution, TermId, projection
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Node
from tpf_client.sparql.algebra import Call, Constant, Expression, VariableRef
from tpf_client.sparql.expressions.compiler import Compiler
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.inlined import (
    DECIMAL,
    INTEGER,
    SERIAL,
    TAG,
    TAG_BITS,
    decimal_of,
)
from tpf_server.continuous.runtime.plans.stamps import hidden_stamp, seen_by
from tpf_server.continuous.runtime.static.static_rows import INSTANCE

QueryT = TypeVar("QueryT", bound=Hashable)
_Number: TypeAlias = int | Decimal
MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons that the index answers, each with its form with exchanged sides."""


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


def lifted_comparison(condition: Expression, number: int) -> tuple[Call, Term] | None:
    """Put a variable in place of the constant that a condition compares with; return both."""
    match condition:
        case Call(operator, (left, Constant(term))) if operator in MIRRORED:
            pass
        case Call(turned, (Constant(term), left)) if turned in MIRRORED:
            operator = MIRRORED[turned]
        case _:
            return None
    if isinstance(left, Constant):
        return None
    return Call(operator, (left, VariableRef(lifted_variable(number)))), term


def comparison(
    condition: Expression, schema: Sequence[Variable], environment: Environment
) -> Comparison:
    """Compare a value with the variable that stands for a constant."""
    match condition:
        case Call(operator, (left, VariableRef(variable))):
            whole = Call(operator, tuple(map(VariableRef, _SIDES)))
            test = Compiler(environment, _SIDES).condition(whole)
            value = Compiler(environment, schema).binding(left)
            return Comparison(operator, variable, value, test)
    raise AssertionError(condition)


# The queries whose constants compare with a solution.

_Numbered = tuple[int, Comparison]


class ConstantIndex(Generic[QueryT]):
    """The queries for whose constants c all comparisons ``value operator c`` are true.

    They are looked up for the first, and tried with the others; without comparisons all are. For
    the first, integers and decimals, whose order Python knows exactly, are in a sorted list; IRIs
    are looked up; other constants, and all where the value is another literal, are tried.
    """

    def __init__(self, comparisons: Sequence[Comparison], dictionary: TermDictionary) -> None:
        self.tried = 0
        self._all: list[_Numbered] = list(enumerate(comparisons))
        self._others = self._all[1:]
        if comparisons:
            first = comparisons[0]
            self._operator, self._value, self._test = first.operator, first.value, first.test
        self._dictionary = dictionary
        self._constants: dict[QueryT, Sequence[TermId]] = {}
        self._queries: dict[TermId, dict[QueryT, None]] = {}
        self._numbers: list[tuple[_Number, TermId]] = []
        self._literals: dict[TermId, None] = {}

    def add(self, query: QueryT, constants: Sequence[TermId]) -> None:
        self._constants[query] = constants
        if not constants:
            return
        constant = constants[0]
        queries = self._queries.get(constant)
        if queries is None:
            queries = self._queries[constant] = {}
            number = self._number(constant)
            if number is not None:
                insort(self._numbers, (number, constant))
            elif not self._named(constant):
                self._literals[constant] = None
        queries[query] = None

    def remove(self, query: QueryT) -> None:
        constants = self._constants.pop(query)
        if not constants:
            return
        constant = constants[0]
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

    def queries(self, solution: Solution) -> list[QueryT]:
        if not self._all:
            return [*self._constants]
        queries: list[QueryT] = []
        for constant in self._meeting(self._value(solution)):
            queries += self._queries[constant]
        return self._among(queries, solution, self._others)

    def among(self, queries: Sequence[QueryT], solution: Solution) -> list[QueryT]:
        """Return those of a few queries that want a solution."""
        return self._among(queries, solution, self._all)

    def _among(
        self, queries: Sequence[QueryT], solution: Solution, comparisons: Sequence[_Numbered]
    ) -> list[QueryT]:
        constants = self._constants
        for position, each in comparisons if queries else ():
            value, test = each.value(solution), each.test
            queries = [one for one in queries if test((value, constants[one][position]))]
        return [*queries]

    def _meeting(self, value: TermId) -> list[TermId]:
        if value == UNBOUND:
            return []
        if self._named(value):
            # Nothing else is equal to it, and it has no order.
            return [value] if self._operator == "=" and value in self._queries else []
        number = self._number(value)
        tried: list[TermId] = list(self._literals)
        if number is None:
            tried += [constant for _, constant in self._numbers]
            result = []
        else:
            result = self._ordered(number)
        self.tried += len(tried)
        return result + [constant for constant in tried if self._test((value, constant))]

    def _ordered(self, value: _Number) -> list[TermId]:
        numbers: list[Any] = self._numbers
        first, last = bisect_left(numbers, (value,)), bisect_left(numbers, (value, inf))
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
        tag = identifier & TAG
        if tag:
            return tag == SERIAL
        text = self._dictionary.texts[identifier]
        return text[0] == "_" or (text[0] == "<" and text[1] != "<")


_FEW: Final = 8
"""Of so many queries that see a solution each constant is compared."""


class Dispatch(Node):
    """Solutions with the queries that want them, computed once for all queries.

    The column `INSTANCE` holds the numbers of these queries, as a tuple, or that of one of them.
    Where it is there already it stays, and the constants of that query decide. Stamps (see
    `Watermark`) are left out: a query gets the solutions that it sees by these.

    Args:
        comparisons: the conditions; constants are looked up for the first. Without any, stamps
            alone tell queries apart.
    """

    def __init__(
        self,
        upstream: Node,
        comparisons: Sequence[Comparison],
        dictionary: TermDictionary,
    ) -> None:
        schema = [name for name in upstream.schema if not hidden_stamp(name)]
        apart = INSTANCE in schema
        super().__init__(
            schema if apart else (*schema, INSTANCE),
            upstream.certain & {*schema} | {INSTANCE},
            monotone=upstream.monotone,
        )
        self.variables = tuple([each.variable for each in comparisons])
        self.index: ConstantIndex[int] = ConstantIndex(comparisons, dictionary)
        self._numbers: list[int] = []
        self._seen_by = seen_by(upstream.schema)
        self._visible = projection(upstream.schema, schema)
        self._stamped = len(schema) < len(upstream.schema)
        if apart:
            self._column = schema.index(INSTANCE)
            upstream.connect(self._push_one)
        else:
            upstream.connect(self._push)

    def add(self, number: int, constants: Sequence[TermId]) -> None:
        insort(self._numbers, number)
        self.index.add(number, constants)

    def remove(self, number: int) -> None:
        self._numbers.remove(number)
        self.index.remove(number)

    def seen(self, number: int, solution: Solution) -> Solution | None:
        """Return what a query sees of a solution that it wants."""
        after, until = self._seen_by(solution)
        wants = after < number <= until and self.index.among((number,), solution)
        return self._visible(solution) if wants else None

    def _push_one(self, solution: Solution, count: int) -> None:
        if self.index.among((solution[self._column],), solution):
            self.emit(solution, count)

    def _push(self, solution: Solution, count: int) -> None:
        if self._stamped:
            numbers = self._wanting(solution, *self._seen_by(solution))
            solution = self._visible(solution)
        else:
            numbers = self.index.queries(solution)
        if numbers:
            self.emit((*solution, tuple(numbers)), count)  # type: ignore[arg-type]

    def _wanting(self, solution: Solution, after: int, until: int) -> list[int]:
        """Return the queries after one and up to another that want a solution."""
        own, index = self._numbers, self.index
        first, last = bisect_right(own, after), bisect_right(own, until)
        if last - first <= _FEW or not self.variables:
            return index.among(own[first:last], solution)
        numbers = index.queries(solution)
        if last - first < len(own):
            numbers = [number for number in numbers if after < number <= until]
        return numbers


class NettingDispatch(Dispatch):
    """A `Dispatch` of solutions whose stamps change: what a query sees of them is netted."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._held: dict[Solution, list[tuple[Solution, int]]] = {}

    @property
    def pending(self) -> bool:
        """True if solutions changed."""
        return bool(self._held)

    def _push(self, solution: Solution, count: int) -> None:
        self._held.setdefault(self._visible(solution), []).append((solution, count))

    def flush(self) -> None:
        """Send what has changed for each query."""
        held, self._held = self._held, {}
        for visible, own in held.items():
            changes = [(*self._seen_by(each), count) for each, count in own]
            alike: dict[int, list[int]] = {}
            after, until = min(each[0] for each in changes), max(each[1] for each in changes)
            for number in self._wanting(own[0][0], after, until):
                total = 0
                for after, until, count in changes:
                    if after < number <= until:
                        total += count
                if total:
                    alike.setdefault(total, []).append(number)
            for total, numbers in alike.items():
                self.emit((*visible, tuple(numbers)), total)  # type: ignore[arg-type]
