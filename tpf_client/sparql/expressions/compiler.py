"""Compile expressions to closures over solutions (SPARQL 1.1, section 17).

A closure gives a typed value or a term identifier: ``?x`` as a term keeps its lexical form.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar

from annotations.terms import Variable
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql.algebra import Aggregate, Call, Constant, Exists, Expression, VariableRef
from tpf_client.sparql.expressions import operators, terms
from tpf_client.sparql.expressions.environment import Environment, Solution, Spend, TermOf, ValueOf
from tpf_client.sparql.expressions.functions import (
    CASTS,
    FUNCTIONS,
    ON_TEXTS,
    SLOWLY,
    SPENDING,
    cast_to,
    free,
)
from tpf_client.sparql.expressions.values import (
    EvaluationError,
    Iri,
    LanguageString,
    Opaque,
    Value,
)

T = TypeVar("T")

VOLATILE = frozenset(("RAND", "UUID", "STRUUID", "BNODE"))
"""Functions that give another value each time."""


_LONG: Final = 256
"""Characters of a text up to which functions read it for nothing."""
_KEPT: Final = 3
"""A text that becomes a term costs so many times as much as one that is read."""
CALLS: Final = 16
"""Calls in an expression from which on rows pay for them."""
_CALL: Final = 4
"""Characters that one of these calls costs as much as."""


def is_volatile(expression: Expression) -> bool:
    """True if an expression may differ for the same solution (RAND, UUID, BNODE)."""
    return any(each.name in VOLATILE for each in _calls(expression))


def _calls(expression: Expression) -> Iterator[Call]:
    waiting = [expression]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Call):
            yield each
            waiting.extend(each.arguments)


class Compiler:
    """Make closures for solutions of one schema."""

    def __init__(
        self, environment: Environment, schema: Sequence[Variable], row: int | None = None
    ) -> None:
        self.environment = environment
        self.typed = environment.typed
        self._columns = {name: column for column, name in enumerate(schema)}
        self._row = len(schema) if row is None else row
        self.bounded = environment.spend is not None

    def spend(self, characters: int) -> None:
        if self.environment.spend is not None:
            self.environment.spend(characters)

    # ------------------------------------------------------------------------- for users

    def condition(self, expression: Expression) -> Callable[[Solution], bool]:
        """Compile to the effective boolean value; an error is false."""
        test = self.test(expression)

        def holds(solution: Solution) -> bool:
            try:
                return test(solution)
            except EvaluationError:
                return False

        return self.paid((expression,), holds)

    def place(self, expression: Expression) -> int | None:
        """The column of an expression that is a variable."""
        return (
            self._columns.get(expression.variable) if isinstance(expression, VariableRef) else None
        )

    def binding(self, expression: Expression) -> TermOf:
        """Compile to the identifier of the value; 0 for an error."""
        if (column := self.place(expression)) is not None:
            return itemgetter(column)
        term = self.term(expression)

        def bind(solution: Solution) -> int:
            try:
                return term(solution)
            except EvaluationError:
                return 0

        return self.paid((expression,), bind)

    def paid(
        self, expressions: Sequence[Expression], evaluate: Callable[[Solution], T]
    ) -> Callable[[Solution], T]:
        """A closure that pays for the calls in these expressions, if they are many."""
        calls = sum(1 for expression in expressions for _ in _calls(expression))
        spend = self.environment.spend
        if spend is None or calls < CALLS:
            return evaluate

        def pay(solution: Solution) -> T:
            spend(_CALL * calls)
            return evaluate(solution)

        return pay

    def bindings(self, expressions: Sequence[Expression]) -> Callable[[Solution], Solution]:
        each = tuple([self.binding(expression) for expression in expressions])
        match each:
            case ():
                return lambda _solution: ()
            case (only,):
                return lambda solution: (only(solution),)
            case (first, second):
                return lambda solution: (first(solution), second(solution))
            case _:
                return lambda solution: tuple([bind(solution) for bind in each])

    # ----------------------------------------------------------------------- for closures

    def term(self, expression: Expression) -> TermOf:
        match expression:
            case VariableRef(variable):
                column = self._columns.get(variable)
                if column is None:
                    return _error

                def look_up(solution: Solution) -> int:
                    identifier = solution[column]
                    if identifier:
                        return identifier
                    raise EvaluationError

                return look_up
            case Constant(term):
                identifier = self.typed.dictionary.encode(term)
                return lambda _solution: identifier
            case Call(name, arguments) if name in terms.TERM_FUNCTIONS:
                return terms.TERM_FUNCTIONS[name](self, arguments)
            case _:
                value = self.value(expression)
                encode, spend = self.typed.encode, self.environment.spend
                if spend is None:
                    return lambda solution: encode(value(solution))

                def keep(solution: Solution) -> int:
                    result = value(solution)
                    if type(result) is str:
                        if len(result) > _LONG:
                            spend(_KEPT * len(result))
                    elif type(result) in _TEXTS:
                        spend(_KEPT * _length(result))
                    return encode(result)

                return keep

    def value(self, expression: Expression) -> ValueOf:
        match expression:
            case VariableRef(variable):
                column = self._columns.get(variable)
                if column is None:
                    return _error
                typed, at = self.typed, itemgetter(column)
                return lambda solution: typed[at(solution)]
            case Constant(term):
                value = self.typed[self.typed.dictionary.encode(term)]
                return lambda _solution: value
            case Call(name, arguments):
                return self._call(name, arguments)
            case Exists() | Aggregate():
                raise UnsupportedQueryError(f"{type(expression).__name__} cannot stand here")

    def test(self, expression: Expression) -> Callable[[Solution], bool]:
        value = self.value(expression)
        truth = operators.truth

        def test(solution: Solution) -> bool:
            result = value(solution)
            return result if result is True or result is False else truth(result)

        return test

    def _call(self, name: str, arguments: tuple[Expression, ...]) -> ValueOf:
        if name in _LOGIC:
            return _LOGIC[name](self, arguments)
        if name in terms.TERM_FUNCTIONS:
            term, typed = terms.TERM_FUNCTIONS[name](self, arguments), self.typed
            return lambda solution: typed[term(solution)]
        if name in terms.ON_TERMS:
            return terms.ON_TERMS[name](self, arguments)
        if name in CASTS and len(arguments) == 1:
            return cast_to(self, name, arguments[0])
        function = _OPERATORS.get(name) or FUNCTIONS.get(name)
        if function is None:
            if self.environment.strict:
                raise UnsupportedQueryError(f"unknown function {name}")
            return _error
        if name in _ORDERS:
            fast = self._beside_instant(name, arguments)
            if fast is not None:
                return fast
        values = [self.value(argument) for argument in arguments]
        spend = self.environment.spend
        if name in SPENDING:
            function = partial(function, spend or free)
        if spend is not None:
            if name in _COMPARISONS:
                return _comparing(function, values[0], values[1], spend)
            if name in ON_TEXTS:
                return _paying(function, values, spend, SLOWLY.get(name, 1))
        if len(values) == 1:
            (only,) = values
            return lambda solution: function(only(solution))
        if len(values) == 2:
            left, right = values
            return lambda solution: function(left(solution), right(solution))
        return lambda solution: function(*[value(solution) for value in values])

    def _beside_instant(self, name: str, arguments: tuple[Expression, ...]) -> ValueOf | None:
        """Compile a variable's comparison with a constant instant, cached: the same ones recur."""
        match arguments:
            case (VariableRef(variable), Constant() as constant):
                turned = False
            case (Constant() as constant, VariableRef(variable)):
                turned = True
            case _:
                return None
        column, value = self._columns.get(variable), self.value(constant)(())
        if column is None or not isinstance(value, operators.POINTS):
            return None
        function, typed, at = _OPERATORS[name], self.typed, itemgetter(column)
        cache = typed.results_of((name, constant, turned))

        def compare(solution: Solution) -> Value:
            identifier = at(solution)
            result = cache.get(identifier)
            if result is None:
                other = typed[identifier]
                result = function(value, other) if turned else function(other, value)
                cache.remember(identifier, result)
            return result

        return compare

    def row(self, solution: Solution) -> Solution:
        """Return the part of a solution that tells rows apart."""
        return solution[: self._row]


def _error(_solution: Solution) -> Any:
    raise EvaluationError


def _length(value: Value) -> int:
    if type(value) is str:
        return len(value)
    return len(value[0]) if type(value) in _TEXTS else 0  # type: ignore[index, arg-type]


_TEXTS: Final = frozenset((LanguageString, Iri, Opaque))


def _paying(
    function: Callable[..., Value], values: Sequence[ValueOf], spend: Spend, weight: int
) -> ValueOf:
    """A call of a function that pays for long texts that it is given."""
    if len(values) == 1:
        (only,) = values

        def call_one(solution: Solution) -> Value:
            value = only(solution)
            if type(value) is not str or len(value) > _LONG:
                spend(weight * _length(value))
            return function(value)

        return call_one

    def call(solution: Solution) -> Value:
        taken = [value(solution) for value in values]
        size = 0
        for each in taken:
            size += len(each) if type(each) is str else _length(each)
        if size > _LONG:
            spend(weight * size)
        return function(*taken)

    return call


def _comparing(
    function: Callable[..., Value], left: ValueOf, right: ValueOf, spend: Spend
) -> ValueOf:
    """A comparison; of texts it reads no more than the first one has."""

    def compare(solution: Solution) -> Value:
        one = left(solution)
        if type(one) is str:
            if len(one) > _LONG:
                spend(len(one))
        elif type(one) in _TEXTS:
            spend(_length(one))
        return function(one, right(solution))

    return compare


# ------------------------------------------------------------------- three-valued logic


def _or(compiler: Compiler, arguments: tuple[Expression, ...]) -> ValueOf:
    left, right = (compiler.test(argument) for argument in arguments)

    def either(solution: Solution) -> bool:
        try:
            if left(solution):
                return True
        except EvaluationError:
            if right(solution):
                return True
            raise
        return right(solution)

    return either


def _and(compiler: Compiler, arguments: tuple[Expression, ...]) -> ValueOf:
    left, right = (compiler.test(argument) for argument in arguments)

    def both(solution: Solution) -> bool:
        try:
            if not left(solution):
                return False
        except EvaluationError:
            if not right(solution):
                return False
            raise
        return right(solution)

    return both


def _not(compiler: Compiler, arguments: tuple[Expression, ...]) -> ValueOf:
    test = compiler.test(arguments[0])
    return lambda solution: not test(solution)


def _in(compiler: Compiler, arguments: tuple[Expression, ...]) -> ValueOf:
    operand, *members = (compiler.value(argument) for argument in arguments)
    equal = operators.equal

    def is_in(solution: Solution) -> bool:
        value = operand(solution)
        if compiler.bounded and _length(value) > _LONG:
            compiler.spend(_length(value) * len(members))
        failed = False
        for member in members:
            try:
                if equal(value, member(solution)):
                    return True
            except EvaluationError:
                failed = True
        if failed:
            raise EvaluationError
        return False

    return is_in


def _not_in(compiler: Compiler, arguments: tuple[Expression, ...]) -> ValueOf:
    is_in = _in(compiler, arguments)
    return lambda solution: not is_in(solution)


_LOGIC: dict[str, Callable[[Compiler, tuple[Expression, ...]], ValueOf]] = {
    "||": _or,
    "&&": _and,
    "!": _not,
    "IN": _in,
    "NOT IN": _not_in,
}

_ORDERS = frozenset(("<", ">", "<=", ">="))
_COMPARISONS = _ORDERS | {"=", "!="}

_OPERATORS: dict[str, Callable[..., Value]] = {
    "=": operators.equal,
    "!=": lambda left, right: not operators.equal(left, right),
    "<": operators.less,
    ">": operators.greater,
    "<=": operators.at_most,
    ">=": operators.at_least,
    "+": operators.add,
    "-": operators.subtract,
    "*": operators.multiply,
    "/": operators.quotient,
    "neg": operators.negated,
    "pos": operators.unchanged,
}
