"""Functions on terms (SPARQL 1.1, sections 17.4.1 and 17.4.2, and SPARQL 1.2)."""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from annotations.errors import TermError
from annotations.namespaces import XSD
from annotations.terms import (
    Term,
    Triple,
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
from tpf_client.sparql.algebra import Constant, Expression
from tpf_client.sparql.expressions.environment import ArgumentCompiler, Solution, TermOf, ValueOf
from tpf_client.sparql.expressions.operators import is_number
from tpf_client.sparql.expressions.values import EvaluationError, Iri, Value, bounded
from tpf_client.sparql.iris import is_absolute, resolve

Arguments: TypeAlias = tuple[Expression, ...]


def _if(compiler: ArgumentCompiler, arguments: Arguments) -> TermOf:
    test = compiler.test(arguments[0])
    then, otherwise = compiler.term(arguments[1]), compiler.term(arguments[2])
    return lambda solution: then(solution) if test(solution) else otherwise(solution)


def _coalesce(compiler: ArgumentCompiler, arguments: Arguments) -> TermOf:
    choices = [compiler.term(argument) for argument in arguments]

    def first(solution: Solution) -> int:
        for choice in choices:
            try:
                return choice(solution)
            except EvaluationError:
                continue
        raise EvaluationError

    return first


def _bnode(compiler: ArgumentCompiler, arguments: Arguments) -> TermOf:
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


def _triple(compiler: ArgumentCompiler, arguments: Arguments) -> TermOf:
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


def _part(position: int) -> Callable[[ArgumentCompiler, Arguments], TermOf]:
    def compiled(compiler: ArgumentCompiler, arguments: Arguments) -> TermOf:
        whole, dictionary = compiler.term(arguments[0]), compiler.typed.dictionary

        def part(solution: Solution) -> int:
            term = dictionary.decode(whole(solution))
            compiler.spend(len(term))
            if not is_triple_term(term):
                raise EvaluationError
            return dictionary.encode(triple_of_term(term)[position])

        return part

    return compiled


TERM_FUNCTIONS: dict[str, Callable[[ArgumentCompiler, Arguments], TermOf]] = {
    "IF": _if,
    "COALESCE": _coalesce,
    "BNODE": _bnode,
    "TRIPLE": _triple,
    "SUBJECT": _part(0),
    "PREDICATE": _part(1),
    "OBJECT": _part(2),
}
"""Functions whose result is a term that may be one of their arguments."""


def _on_term(function: Callable[[Term], Value]) -> Callable[[ArgumentCompiler, Arguments], ValueOf]:
    def compiled(compiler: ArgumentCompiler, arguments: Arguments) -> ValueOf:
        term, decode = compiler.term(arguments[0]), compiler.typed.dictionary.decode
        cache = compiler.typed.results_of(function)

        def call(solution: Solution) -> Value:
            identifier = term(solution)
            value = cache.get(identifier)
            if value is None:
                decoded = decode(identifier)
                compiler.spend(len(decoded))
                value = function(decoded)
                cache.remember(identifier, value)
            return value

        return call

    return compiled


def _bound(compiler: ArgumentCompiler, arguments: Arguments) -> ValueOf:
    term = compiler.term(arguments[0])

    def bound(solution: Solution) -> bool:
        try:
            term(solution)
        except EvaluationError:
            return False
        return True

    return bound


def _same_term(compiler: ArgumentCompiler, arguments: Arguments) -> ValueOf:
    left, right = (compiler.term(argument) for argument in arguments)
    return lambda solution: left(solution) == right(solution)


def lexical_form(term: Term) -> str:
    """STR; an `EvaluationError` for a blank node or a triple term."""
    if is_iri(term):
        return term[1:-1]
    if is_literal(term):
        return literal_parts(term).lexical
    raise EvaluationError


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


def _iri(compiler: ArgumentCompiler, arguments: Arguments) -> ValueOf:
    base: str | None = None
    if len(arguments) > 1:
        assert isinstance(arguments[1], Constant)
        base = arguments[1].term[1:-1]
    return _on_term(_iri_maker(base))(compiler, arguments)


@lru_cache(maxsize=64)
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


def _strdt(compiler: ArgumentCompiler, arguments: Arguments) -> ValueOf:
    text, datatype = (compiler.value(argument) for argument in arguments)
    typed = compiler.typed

    def make(solution: Solution) -> Value:
        lexical, kind = text(solution), datatype(solution)
        if type(lexical) is not str or not isinstance(kind, Iri):
            raise EvaluationError
        compiler.spend(len(lexical) + len(kind.value))
        return typed[typed.dictionary.encode(literal(lexical, datatype=kind.value))]

    return make


def _now(compiler: ArgumentCompiler, _arguments: Arguments) -> ValueOf:
    now = compiler.environment.now
    return lambda _solution: now


def _rand(compiler: ArgumentCompiler, _arguments: Arguments) -> ValueOf:
    random = compiler.environment.random.random
    return lambda _solution: random()


def _uuid(compiler: ArgumentCompiler, _arguments: Arguments) -> ValueOf:
    import uuid

    bits = compiler.environment.random.getrandbits
    return lambda _solution: Iri(uuid.UUID(int=bits(128), version=4).urn)


def _struuid(compiler: ArgumentCompiler, _arguments: Arguments) -> ValueOf:
    import uuid

    bits = compiler.environment.random.getrandbits
    return lambda _solution: str(uuid.UUID(int=bits(128), version=4))


def _is_numeric(compiler: ArgumentCompiler, arguments: Arguments) -> ValueOf:
    value = compiler.value(arguments[0])
    return lambda solution: is_number(value(solution))


ON_TERMS: dict[str, Callable[[ArgumentCompiler, Arguments], ValueOf]] = {
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
}
"""Functions that look at the terms of their arguments, or at the environment."""
