"""Compile expressions to closures over solutions (SPARQL 1.1, section 17, and SPARQL 1.2).

A closure gives a typed value or a term identifier: ``?x`` as a term keeps its lexical form.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

from annotations.errors import TermError
from annotations.namespaces import XSD
from annotations.terms import (
    Term,
    Triple,
    Variable,
    blank_node,
    iri,
    is_blank_node,
    is_iri,
    is_literal,
    is_triple_term,
    literal,
    literal_parts,
    triple_of_term,
    triple_term,
)
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql.algebra import (
    Aggregate,
    Call,
    Constant,
    Exists,
    Expression,
    VariableRef,
    everything,
)
from tpf_client.sparql.expressions import operators
from tpf_client.sparql.expressions.environment import Environment, Solution, Spend, TermOf, ValueOf
from tpf_client.sparql.expressions.functions import CASTS, FUNCTIONS, SPENDING, WEIGHTS, free
from tpf_client.sparql.expressions.values import (
    BlankNode,
    EvaluationError,
    Iri,
    LanguageString,
    Opaque,
    Value,
    bounded,
    lexical_form,
    lexical_of,
)
from tpf_client.sparql.iris import is_absolute, resolve

T = TypeVar("T")
Arguments: TypeAlias = tuple[Expression, ...]

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
    return (each for each in everything(expression, Exists) if isinstance(each, Call))


class Compiler:
    """Make closures for solutions of one schema."""

    def __init__(
        self, environment: Environment, schema: Sequence[Variable], row: int | None = None
    ) -> None:
        self.environment = environment
        self.typed = environment.typed
        self._columns = {name: column for column, name in enumerate(schema)}
        self._row = len(schema) if row is None else row

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
            case Call(name, arguments) if name in TERM_FUNCTIONS:
                return TERM_FUNCTIONS[name](self, arguments)
            case _:
                value = self.value(expression)
                encode, spend = self.typed.encode, self.environment.spend
                if spend is None:
                    return lambda solution: encode(value(solution))

                def keep(solution: Solution) -> int:
                    result = value(solution)
                    if (size := _length(result)) > _LONG:
                        spend(_KEPT * size)
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

    def _call(self, name: str, arguments: Arguments) -> ValueOf:
        if name in TERM_FUNCTIONS:
            term, typed = TERM_FUNCTIONS[name](self, arguments), self.typed
            return lambda solution: typed[term(solution)]
        if name in VALUE_FUNCTIONS:
            return VALUE_FUNCTIONS[name](self, arguments)
        function = _OPERATORS.get(name) or FUNCTIONS.get(name)
        if function is None:
            return self.unknown(name)
        values = [self.value(argument) for argument in arguments]
        spend = self.environment.spend
        if name in SPENDING:
            function = partial(function, spend or free)
        if spend is not None and name in _COMPARISONS:
            return _comparing(function, values[0], values[1], spend)
        if spend is not None and name in WEIGHTS:
            return _paying(function, values, spend, WEIGHTS[name])
        if len(values) == 1:
            (only,) = values
            return lambda solution: function(only(solution))
        if len(values) == 2:
            left, right = values
            return lambda solution: function(left(solution), right(solution))
        return lambda solution: function(*[value(solution) for value in values])

    def unknown(self, name: str) -> ValueOf:
        """A call of a function that is not known."""
        if self.environment.strict:
            raise UnsupportedQueryError(f"unknown function {name}")
        return _error

    def row(self, solution: Solution) -> Solution:
        """Return the part of a solution that tells rows apart."""
        return solution[: self._row]


def _error(_solution: Solution) -> Any:
    raise EvaluationError


_TEXTS: Final = frozenset((str, LanguageString, Iri, Opaque))


def _length(value: Value) -> int:
    if type(value) is str:
        return len(value)
    return len(value[0]) if type(value) in _TEXTS else 0  # type: ignore[index, arg-type]


def _comparing(
    function: Callable[..., Value], left: ValueOf, right: ValueOf, spend: Spend
) -> ValueOf:
    """A comparison; of texts it reads no more than the first one has."""

    def compare(solution: Solution) -> Value:
        one = left(solution)
        if type(one) in _TEXTS and (size := _length(one)) > _LONG:
            spend(size)
        return function(one, right(solution))

    return compare


def _paying(
    function: Callable[..., Value], values: Sequence[ValueOf], spend: Spend, weight: int
) -> ValueOf:
    """A call of a function that pays for long texts that it is given."""

    def call(solution: Solution) -> Value:
        taken = [value(solution) for value in values]
        size = sum(map(_length, taken))
        if size > _LONG:
            spend(weight * size)
        return function(*taken)

    return call


# ------------------------------------------------------------------- three-valued logic


def _or(compiler: Compiler, arguments: Arguments) -> ValueOf:
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


def _and(compiler: Compiler, arguments: Arguments) -> ValueOf:
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


def _not(compiler: Compiler, arguments: Arguments) -> ValueOf:
    test = compiler.test(arguments[0])
    return lambda solution: not test(solution)


def _in(compiler: Compiler, arguments: Arguments) -> ValueOf:
    operand, *members = (compiler.value(argument) for argument in arguments)
    equal = operators.equal

    def is_in(solution: Solution) -> bool:
        value = operand(solution)
        if (size := _length(value)) > _LONG:
            compiler.spend(size * len(members))
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


def _not_in(compiler: Compiler, arguments: Arguments) -> ValueOf:
    is_in = _in(compiler, arguments)
    return lambda solution: not is_in(solution)


# ------------------------------------------------ functions of terms, or of the environment

Compiled: TypeAlias = Callable[[Compiler, Arguments], ValueOf]
"""Compiles a call of one function."""


def _if(compiler: Compiler, arguments: Arguments) -> TermOf:
    test = compiler.test(arguments[0])
    then, otherwise = compiler.term(arguments[1]), compiler.term(arguments[2])
    return lambda solution: then(solution) if test(solution) else otherwise(solution)


def _coalesce(compiler: Compiler, arguments: Arguments) -> TermOf:
    choices = [compiler.term(argument) for argument in arguments]

    def first(solution: Solution) -> int:
        for choice in choices:
            try:
                return choice(solution)
            except EvaluationError:
                continue
        raise EvaluationError

    return first


def _bnode(compiler: Compiler, arguments: Arguments) -> TermOf:
    environment, encode = compiler.environment, compiler.typed.dictionary.encode

    def fresh() -> int:
        return encode(blank_node(f"b{environment.random.getrandbits(96):024x}"))

    if not arguments:
        return lambda _solution: fresh()
    label = compiler.value(arguments[0])

    def labelled(solution: Solution) -> int:
        name = label(solution)
        if type(name) is not str:
            raise EvaluationError
        key = (compiler.row(solution), name)
        node = environment.nodes.get(key)
        if node is None:
            node = environment.nodes[key] = fresh()
        return node

    return labelled


def _triple(compiler: Compiler, arguments: Arguments) -> TermOf:
    dictionary = compiler.typed.dictionary
    parts = [compiler.term(argument) for argument in arguments]

    def make(solution: Solution) -> int:
        subject, predicate, object_ = (dictionary.decode(part(solution)) for part in parts)
        if not (is_iri(subject) or is_blank_node(subject)) or not is_iri(predicate):
            raise EvaluationError
        try:
            made = bounded(triple_term(Triple(subject, predicate, object_)))
        except TermError:
            raise EvaluationError from None
        compiler.spend(len(made))
        return dictionary.encode(Term(made))

    return make


def _part(position: int) -> Callable[[Compiler, Arguments], TermOf]:
    def compiled(compiler: Compiler, arguments: Arguments) -> TermOf:
        whole, dictionary = compiler.term(arguments[0]), compiler.typed.dictionary

        def part(solution: Solution) -> int:
            term = dictionary.decode(whole(solution))
            compiler.spend(len(term))
            if not is_triple_term(term):
                raise EvaluationError
            return dictionary.encode(triple_of_term(term)[position])

        return part

    return compiled


TERM_FUNCTIONS: dict[str, Callable[[Compiler, Arguments], TermOf]] = {
    "IF": _if,
    "COALESCE": _coalesce,
    "BNODE": _bnode,
    "TRIPLE": _triple,
    "SUBJECT": _part(0),
    "PREDICATE": _part(1),
    "OBJECT": _part(2),
}
"""Functions whose result is a term that may be one of their arguments."""


def _on_term(function: Callable[[Term], Value]) -> Compiled:
    def compiled(compiler: Compiler, arguments: Arguments) -> ValueOf:
        term, decode = compiler.term(arguments[0]), compiler.typed.dictionary.decode

        def call(solution: Solution) -> Value:
            decoded = decode(term(solution))
            if len(decoded) > _LONG:
                compiler.spend(len(decoded))
            return function(decoded)

        return call

    return compiled


def _bound(compiler: Compiler, arguments: Arguments) -> ValueOf:
    term = compiler.term(arguments[0])

    def bound(solution: Solution) -> bool:
        try:
            term(solution)
        except EvaluationError:
            return False
        return True

    return bound


def _same_term(compiler: Compiler, arguments: Arguments) -> ValueOf:
    left, right = (compiler.term(argument) for argument in arguments)
    return lambda solution: left(solution) == right(solution)


def _tags(term: Term) -> tuple[str, str]:
    """Return language and direction of a literal; empty where it has none."""
    if not is_literal(term):
        raise EvaluationError
    language, _, direction = (literal_parts(term).language or "").partition("--")
    return language, direction


def _datatype(term: Term) -> Iri:
    if not is_literal(term):
        raise EvaluationError
    return Iri(literal_parts(term).datatype)


def _iri(compiler: Compiler, arguments: Arguments) -> ValueOf:
    base: str | None = None
    if len(arguments) > 1:
        assert isinstance(arguments[1], Constant)
        base = arguments[1].term[1:-1]
    return _on_term(_iri_maker(base))(compiler, arguments)


def _iri_maker(base: str | None) -> Callable[[Term], Iri]:
    def make(term: Term) -> Iri:
        if is_iri(term):
            return Iri(term[1:-1])
        if not is_literal(term) or literal_parts(term).datatype != XSD + "string":
            raise EvaluationError
        text = literal_parts(term).lexical
        if not is_absolute(text):
            if base is None:
                raise EvaluationError
            text = resolve(base, text)
        try:
            return Iri(iri(text)[1:-1])
        except TermError:
            raise EvaluationError from None

    return make


def _strdt(compiler: Compiler, arguments: Arguments) -> ValueOf:
    text, datatype = (compiler.value(argument) for argument in arguments)
    typed = compiler.typed

    def make(solution: Solution) -> Value:
        lexical, kind = text(solution), datatype(solution)
        if type(lexical) is not str or not isinstance(kind, Iri):
            raise EvaluationError
        compiler.spend(len(lexical) + len(kind.value))
        return typed[typed.dictionary.encode(literal(lexical, datatype=kind.value))]

    return make


def _now(compiler: Compiler, _arguments: Arguments) -> ValueOf:
    now = compiler.environment.now
    return lambda _solution: now


def _rand(compiler: Compiler, _arguments: Arguments) -> ValueOf:
    random = compiler.environment.random.random
    return lambda _solution: random()


def _uuid(compiler: Compiler, _arguments: Arguments) -> ValueOf:
    bits = compiler.environment.random.getrandbits
    return lambda _solution: Iri(uuid.UUID(int=bits(128), version=4).urn)


def _struuid(compiler: Compiler, _arguments: Arguments) -> ValueOf:
    bits = compiler.environment.random.getrandbits
    return lambda _solution: str(uuid.UUID(int=bits(128), version=4))


def _is_numeric(compiler: Compiler, arguments: Arguments) -> ValueOf:
    value = compiler.value(arguments[0])
    return lambda solution: operators.is_number(value(solution))


def _cast(name: str, convert: Callable[[Value], Value] | None) -> Compiled:
    def compiled(compiler: Compiler, arguments: Arguments) -> ValueOf:
        if len(arguments) != 1:
            return compiler.unknown(name)
        value = compiler.value(arguments[0])
        if convert is not None:
            return lambda solution: convert(value(solution))
        term, decode = compiler.term(arguments[0]), compiler.typed.dictionary.decode

        def to_string(solution: Solution) -> Value:
            argument = value(solution)
            match argument:
                case Iri(text) | LanguageString(text, _):
                    return text
                case BlankNode():
                    raise EvaluationError
                case Opaque(kept):
                    compiler.spend(len(kept))
                    return lexical_form(decode(term(solution)))
            return argument if type(argument) is str else lexical_of(argument)[0]

        return to_string

    return compiled


VALUE_FUNCTIONS: dict[str, Compiled] = {
    "||": _or,
    "&&": _and,
    "!": _not,
    "IN": _in,
    "NOT IN": _not_in,
    "BOUND": _bound,
    "SAMETERM": _same_term,
    "STR": _on_term(lexical_form),
    "LANG": _on_term(lambda term: _tags(term)[0]),
    "LANGDIR": _on_term(lambda term: _tags(term)[1]),
    "HASLANG": _on_term(lambda term: is_literal(term) and bool(_tags(term)[0])),
    "HASLANGDIR": _on_term(lambda term: is_literal(term) and bool(_tags(term)[1])),
    "DATATYPE": _on_term(_datatype),
    "IRI": _iri,
    "STRDT": _strdt,
    "ISIRI": _on_term(is_iri),
    "ISBLANK": _on_term(is_blank_node),
    "ISLITERAL": _on_term(is_literal),
    "ISTRIPLE": _on_term(is_triple_term),
    "ISNUMERIC": _is_numeric,
    "NOW": _now,
    "RAND": _rand,
    "UUID": _uuid,
    "STRUUID": _struuid,
    **{name: _cast(name, convert) for name, convert in CASTS.items()},
}
"""Functions that are more than a function of the values of their arguments."""

_COMPARISONS = frozenset(("=", "!=", "<", ">", "<=", ">="))
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
