"""What queries get of an evaluation that they share though they compare with other constants."""

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, get_args

from annotations.terms import Term, Variable
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow, Input, Work
from tpf_client.dataflow.operators.basic import Output
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import (
    Aggregated,
    Call,
    Constant,
    Expression,
    Filter,
    Pattern,
    Query,
    Row,
    VariableRef,
)
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.rewrite.visitor import conjunction, conjuncts, first_exists, movable
from tpf_client.sparql.scopes import always_bound, in_scope, variables_in
from tpf_server.continuous.csparql.native.builder import build_above
from tpf_server.continuous.csparql.native.leaves import CsparqlLeaves
from tpf_server.continuous.engine.plans.constant_index import (
    ConstantIndex,
    comparison,
    comparison_in,
    lifted_variable,
)

# A query in two parts: what it shares with queries that compare with other constants, and its own.
#
# The cut is at the last FILTER or HAVING that compares with constants. What is below is computed
# once for all queries that have it in common; what is above is theirs, whatever it is.

_Above: TypeAlias = (
    algebra.Project
    | algebra.Extend
    | algebra.OrderBy
    | algebra.Distinct
    | algebra.Reduced
    | algebra.Slice
    | algebra.Group
    | Filter
)
_ABOVE: Final = get_args(_Above)
"""What may be above the gap; AGGREGATE is an `Extend`."""


@dataclass(frozen=True, slots=True)
class PartedQuery:
    """A query in two parts.

    Args:
        below: what is shared; its solutions have what the comparisons and all above need.
        comparisons: the conditions, with variables for the constants.
        above: the query over `gap`.
        gap: stands for the solutions that the comparisons let through.
        own: the query over `gap`, with the comparisons.
    """

    below: algebra.Query
    comparisons: tuple[Call, ...]
    constants: tuple[Term, ...]
    above: algebra.Query
    gap: Pattern
    own: algebra.Query


def parted(query: algebra.Query) -> PartedQuery | None:
    """The two parts of a query; ``None`` where it compares with no constant at its end."""
    if query.form == "DESCRIBE":
        return None
    above: list[_Above] = []
    pattern = query.pattern
    while (found := _cut(pattern)) is None:
        if not isinstance(pattern, _ABOVE) or any(
            first_exists(each) is not None for each in algebra.expressions_of(pattern)
        ):
            return None
        above.append(pattern)
        pattern = pattern.input
    inner, comparisons, constants = found
    needed = _needed(above, comparisons, in_scope(inner))
    gap = algebra.Values(needed, ())
    below = algebra.Query("SELECT", algebra.Project(inner, needed), needed, dataset=query.dataset)

    def over(pattern: Pattern) -> algebra.Query:
        for each in reversed(above):
            pattern = replace(each, input=pattern)
        return replace(query, pattern=pattern)

    whole = conjunction(
        Call(each.name, (each.arguments[0], Constant(term)))
        for each, term in zip(comparisons, constants, strict=True)
    )
    assert whole is not None
    return PartedQuery(below, comparisons, constants, over(gap), gap, over(Filter(gap, whole)))


def _cut(pattern: Pattern) -> tuple[Pattern, tuple[Call, ...], tuple[Term, ...]] | None:
    """What is below comparisons; these; and their constants."""
    conditions: list[Expression] = []
    while isinstance(pattern, Filter):
        conditions += conjuncts(pattern.condition)
        pattern = pattern.input
    comparisons: list[Call] = []
    constants: list[Term] = []
    others: list[Expression] = []
    for each in conditions:
        found = comparison_in(each) if movable(each) else None
        if found is None:
            others.append(each)
            continue
        operator, value, constant = found
        variable = VariableRef(lifted_variable(len(constants)))
        comparisons.append(Call(operator, (value, variable)))
        constants.append(constant)
    if not comparisons:
        return None
    rest = conjunction(others)
    inner = pattern if rest is None else Filter(pattern, rest)
    return inner, tuple(comparisons), tuple(constants)


def _needed(
    above: Sequence[Pattern], comparisons: tuple[Call, ...], scope: tuple[Variable, ...]
) -> tuple[Variable, ...]:
    """The variables of what is below that are seen above it."""
    used = {name for each in comparisons for name in variables_in(each)}
    chooses = False
    for pattern in above:
        for expression in algebra.expressions_of(pattern):
            used |= variables_in(expression)
        match pattern:
            case algebra.Project(_, names):
                used.update(names)
                chooses = True
            case Aggregated(_, _, _, names):
                if pattern.aggregate.argument is None and pattern.aggregate.distinct:
                    return scope
                used.update(names)
            case algebra.Group(_, _, aggregates):
                if any(each.argument is None and each.distinct for _, each in aggregates):
                    return scope
                chooses = True
    return tuple(name for name in scope if name in used) if chooses else scope


class Question:
    """What one query asks, or several that ask the same.

    Args:
        parts: what it shares with others, and what is its own; ``None``: it is one piece.
    """

    def __init__(self, key: Hashable, query: Query, parts: PartedQuery | None) -> None:
        self.key = key
        self.query = query
        self.parts = parts
        self.owners = 0


class QuestionPart:
    """The dataflow of what is a question's own."""

    def __init__(
        self,
        question: Question,
        below: Output,
        leaves: CsparqlLeaves,
        dictionary: TermDictionary,
        environment: Environment,
        number: int,
        most: int,
    ) -> None:
        parts = question.parts
        assert parts is not None
        self.number = number
        self.constants = tuple(dictionary.encode(each) for each in parts.constants)
        self._flow = Dataflow(dictionary)
        certain = always_bound(parts.below.pattern)
        self._entry = self._flow.add(Input(below.variables, certain, monotone=False))
        self.output = build_above(
            parts.above, (parts.gap, self._entry), leaves, self._flow, environment
        )
        for node in self._flow.nodes:
            node.limit(Work(most, held=True))
        self._decode = dictionary.decode
        self._stale = True
        self._rows: tuple[Row, ...] = ()

    def push(self, solution: Solution, count: int) -> None:
        """A solution is let through to it, or is not any more."""
        self._stale = True
        self._entry.push(solution, count)

    def rows(self) -> tuple[Row, ...]:
        """Its answer."""
        if self._stale:
            self._stale = False
            self._flow.flush()
            self._rows = read(self.output, self._decode)
        return self._rows


def read(output: Output, decode: Callable[[TermId], Term]) -> tuple[Row, ...]:
    """All that is in an output."""
    # What nobody asks for: the answer is read as a whole.
    output.take_changes()
    return tuple(tuple([decode(each) if each else None for each in row]) for row in output.rows())


class QuestionParts:
    """Gives solutions that are computed once to the questions whose constants compare."""

    def __init__(
        self,
        parts: PartedQuery,
        below: Output,
        leaves: CsparqlLeaves,
        dictionary: TermDictionary,
        environment: Environment,
        most: int,
    ) -> None:
        self._below = below
        self._most = most
        self._leaves = leaves
        self._dictionary = dictionary
        self._environment = environment
        self._comparisons = [
            comparison(each, below.variables, environment) for each in parts.comparisons
        ]
        first = self._comparisons[0]
        self.index = ConstantIndex(first.operator, first.test, dictionary)
        self._numbers = itertools.count(1)
        self._of: dict[Question, QuestionPart] = {}
        self._numbered: dict[int, QuestionPart] = {}

    def pass_on(self) -> None:
        """What changed below goes to the questions that it concerns."""
        first, *others = self._comparisons
        for solution, count in self._below.take_changes():
            for number in self.index.queries(first.value(solution)):
                part = self._numbered[number]
                if all(
                    each.test((each.value(solution), constant))
                    for each, constant in zip(others, part.constants[1:], strict=True)
                ):
                    part.push(solution, count)

    def of(self, question: Question) -> QuestionPart:
        """What a question gets."""
        found = self._of.get(question)
        if found is None:
            self.pass_on()
            found = QuestionPart(
                question,
                self._below,
                self._leaves,
                self._dictionary,
                self._environment,
                next(self._numbers),
                self._most,
            )
            self._of[question] = self._numbered[found.number] = found
            self.index.add(found.constants[0], found.number)
            for solution, count in self._below.multiset().items():
                if all(
                    each.test((each.value(solution), constant))
                    for each, constant in zip(self._comparisons, found.constants, strict=True)
                ):
                    found.push(solution, count)
        return found

    def drop(self, question: Question) -> None:
        """Nobody asks it any more."""
        part = self._of.pop(question, None)
        if part is not None:
            del self._numbered[part.number]
            self.index.remove(part.constants[0], part.number)
