"""Specialised arithmetic against the closures of the compiler."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotations.terms import Term, Variable
from tpf_client.dataflow.arithmetic import ArithmeticCompiler
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import Extend, Project
from tpf_client.sparql.expressions.compiler import Compiler
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.expressions.values import value_of
from tpf_server.continuous.cqels.parser import parse

XSD = "http://www.w3.org/2001/XMLSchema#"
EXPRESSIONS = [
    "ROUND((41.474937 - ?a) / 0.005986)",
    "ROUND((74.913585 + ?b) * 2 / 0.004491556)",
    "?a + ?b", "?a - ?b", "?a * ?b", "?a / ?b", "1 / ?b", "?a / -0.7", "- ?a",
    "?a > ?b", "?a = ?b", "?a != 2.0", "!(?a <= ?b)",
    "?a > 0 && ?b < 300", "?a > 0 || ?b < 300",
    "FLOOR(?a / 0.7)", "ROUND(?a / 3)", "ROUND((?a - ?b) / 4.0)",
    "FLOOR(?a / ?b)", "CEIL(?a - 3)", "ROUND(?a)", "(?a + ?b) * (?a - ?b)",
]  # fmt: skip

terms = st.one_of(
    st.integers(-(2**61), 2**61).map(lambda value: f'"{value}"^^<{XSD}integer>'),
    st.integers(-30, 30).map(lambda value: f'"{value}"^^<{XSD}integer>'),
    st.decimals(-200, 200, places=6).map(lambda value: f'"{value:f}"^^<{XSD}decimal>'),
    st.decimals(-(10**12), 10**12, places=2).map(lambda value: f'"{value:f}"^^<{XSD}decimal>'),
    st.decimals(-(10**20), 10**20, places=9).map(lambda value: f'"{value:f}"^^<{XSD}decimal>'),
    st.sampled_from(
        [f'"1.5"^^<{XSD}double>', '"x"', "<urn:x>", f'"true"^^<{XSD}boolean>', None]
        + [f'"2013-01-01T00:0{minute}:00Z"^^<{XSD}dateTime>' for minute in range(3)]
        + [f'"2013-01-01T00:01:00.5Z"^^<{XSD}dateTime>', f'"0.0"^^<{XSD}decimal>']
    ),
)


@pytest.fixture(scope="module")
def environment():
    now = value_of(Term(f'"2020-01-01T00:00:00Z"^^<{XSD}dateTime>'))
    assert isinstance(now, DateTime)
    return Environment(TypedTerms(TermDictionary()), now)


class Compiled(NamedTuple):
    """An expression in its two forms: specialised, and as closures."""

    bind: Any
    both: Any
    holds: Any
    plain_bind: Any
    plain_holds: Any


@pytest.fixture(scope="module")
def compiled(environment):
    schema = (Variable("?a"), Variable("?b"))
    fast, slow = ArithmeticCompiler(environment, schema), Compiler(environment, schema)
    found = {}
    for text in EXPRESSIONS:
        parsed = expression(text)
        found[text] = Compiled(
            fast.binding(parsed),
            fast.bindings((parsed, parsed)),
            fast.condition(parsed),
            slow.binding(parsed),
            slow.condition(parsed),
        )
    return found


def expression(text):
    pattern = parse(f"SELECT ({text} AS ?z) {{ ?a ?p ?b }}").query.pattern
    assert isinstance(pattern, Project)
    assert isinstance(pattern.input, Extend)
    return pattern.input.expression


@settings(deadline=None)
@given(rows=st.lists(st.tuples(terms, terms), min_size=1, max_size=16))
def test_equal_to_the_closures(compiled, environment, rows):
    encode = environment.typed.dictionary.encode
    solutions = [tuple(encode(term) if term else 0 for term in row) for row in rows]
    for text, each in compiled.items():
        for solution in solutions:
            expected = each.plain_bind(solution)
            assert each.bind(solution) == expected, text
            assert each.both(solution) == (expected, expected), text
            assert each.holds(solution) == each.plain_holds(solution), text


@given(st.decimals(-(10**17), 10**17, places=10))
def test_computed_decimals_are_canonical(value):
    typed = TypedTerms(TermDictionary())
    term = typed.dictionary.decode(typed.encode(value))
    assert value_of(term) == value
    text = term[1 : term.rindex('"')]
    assert "." not in text or text[-1] not in "0."
