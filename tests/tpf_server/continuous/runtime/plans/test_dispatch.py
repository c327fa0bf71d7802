"""Queries that differ in compared constants share a plan and an index of constants."""

from functools import partial
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term, Variable
from tests.support.examples import examples
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import Call, VariableRef
from tpf_client.sparql.expressions.compiler import Compiler
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.elements.elements import date_time_at
from tpf_server.continuous.runtime.plans.dispatch import MIRRORED, Comparison, ConstantIndex
from tpf_server.continuous.runtime.semantics import PAPER

XSD = "http://www.w3.org/2001/XMLSchema#"
TERMS = [
    *(f'"{n}"^^<{XSD}integer>' for n in ("-1", "0", "1", "2", "10", "01", "9" * 23)),
    *(f'"{n}"^^<{XSD}decimal>' for n in ("-1.0", "0.5", "1.0", "1.50", "10")),
    *(f'"{n}"^^<{XSD}double>' for n in ("1", "1.5E0", "NaN", "INF", "-0.0", "no")),
    *(f'"{n}"^^<{XSD}float>' for n in ("1", "0.1")),
    f'"2"^^<{XSD}byte>', f'"x"^^<{XSD}integer>', f'"true"^^<{XSD}boolean>', f'"0"^^<{XSD}boolean>',
    f'"2020-01-01T00:00:00Z"^^<{XSD}dateTime>', f'"2020-01-01T01:00:00+01:00"^^<{XSD}dateTime>',
    '"1"', '"a"', '"a"@en', '"b"@en', f'"a"^^<{XSD}string>', "<urn:a>", "<urn:b>", "<urn:n7>",
    "_:b", '"a"^^<urn:unknown>', '"b"^^<urn:unknown>',
]  # fmt: skip


@examples(60)
@given(
    st.sampled_from(sorted(MIRRORED)),
    st.lists(st.tuples(st.sampled_from(TERMS), st.booleans()), max_size=12),
    st.sampled_from(TERMS),
)
def test_an_index_finds_what_trying_finds(
    operator: str, constants: list[tuple[str, bool]], value: str
) -> None:
    dictionary = TermDictionary()
    dictionary.register_prefix("urn:n")
    environment = Environment(TypedTerms(dictionary), date_time_at(0))
    sides = ("?.value", "?.constant")
    whole = Call(operator, tuple(VariableRef(each) for each in sides))  # type: ignore[arg-type]
    test = Compiler(environment, sides).condition(whole)  # type: ignore[arg-type]
    compared = Comparison(operator, Variable("?.constant"), itemgetter(0), test)
    index: ConstantIndex[int] = ConstantIndex([compared], dictionary)
    encoded = [dictionary.encode(Term(each)) for each, _ in constants]
    for number, constant in enumerate(encoded):
        index.add(number, [constant])
    for number, (_, gone) in enumerate(constants):
        if gone:
            index.remove(number)
    left = dictionary.encode(Term(value))
    expected = [
        number
        for number, (constant, (_, gone)) in enumerate(zip(encoded, constants, strict=True))
        if not gone and test((left, constant))
    ]
    assert sorted(index.queries((left,))) == expected
    assert list(index.queries((0,))) == []


def _note(found: list[int], number: int, _emission: object) -> None:
    found.append(number)


@pytest.mark.parametrize(
    ("text", "between"),
    [
        ("SELECT ?a { STREAM <urn:s> [RANGE 1s] { ?a <urn:v> ?v } FILTER(?v > %d) }", False),
        ("SELECT ?a { STREAM <urn:s> [RANGE 1s] { ?a <urn:v> ?v } FILTER(?v > %d) }", True),
        ("SELECT ?a { STREAM <urn:s> [RANGE 1s] { ?a <urn:v> ?v } FILTER(?a = <urn:n%d>) }", False),
        ("SELECT ?a { STREAM <urn:s> [RANGE 1s] { ?a <urn:v> ?v } FILTER(?a = <urn:n%d>) }", True),
        # A group has what came before a query; later ones: see `test_lifted_constants`.
        (
            "SELECT ?a (MAX(?v) AS ?m) { STREAM <urn:s> [RANGE 1s] { ?a <urn:v> ?v } } GROUP BY ?a"
            " HAVING(MAX(?v) > %d)",
            False,
        ),
    ],
)
def test_constants_are_found_and_not_tried(text: str, between: bool) -> None:
    """Three of a thousand thresholds are below the value."""
    engine = Engine()
    found: list[int] = []
    for number in range(200):
        engine.register(text % number, partial(_note, found, number))
        if between:
            engine.push("urn:s", ("<urn:x>", "<urn:v>", f'"-1"^^<{XSD}integer>'), 0)
    plans = {each.plan for each in engine.queries.values()}
    assert len(plans) <= 3
    engine.push("urn:s", ("<urn:n2>", "<urn:v>", f'"3"^^<{XSD}integer>'), 1)
    assert sorted(found) == ([2] if "urn:n" in text else [0, 1, 2])
    assert [each.index.tried for plan in plans if plan for each in plan.dispatches] == [0] * (
        len(plans) - 1
    )


def test_a_solution_that_goes_and_comes_at_once_is_new_to_those_who_came_between() -> None:
    """It stays for one query, and is new for the other."""
    engine = Engine(EngineSettings(semantics=PAPER))
    text = "SELECT ?a { STREAM <urn:s> [RANGE 5ms] { ?a <urn:v> ?v } FILTER(?v > %s) }"
    triple = ("<urn:a>", "<urn:v>", f'"9"^^<{XSD}integer>')
    found: list[tuple[int, int]] = []

    def register(number: int) -> None:
        engine.register(text % number, lambda each: found.append((number, each.at)))

    for number in (0, 1):
        register(number)
        engine.push("urn:s", triple, number)
    engine.push("urn:s", triple, 3)
    register(2)
    register(3)
    assert len({each.plan for each in engine.queries.values()}) == 2
    engine.push("urn:s", triple, 9)
    earlier = [(0, 0), (0, 1), (0, 3), (1, 1), (1, 3)]
    assert sorted(found) == [*earlier, (2, 9), (3, 9)]
