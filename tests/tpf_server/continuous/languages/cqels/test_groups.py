"""Groups under the policy ``cqels``: a row for each new solution."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.semantics import CQELS, PAPER_RSTREAM

AGGREGATES = (
    "COUNT(*)", "COUNT(DISTINCT *)", "COUNT(?b)", "COUNT(DISTINCT ?b)", "SUM(?b)", "MIN(?b)",
    "MAX(?b)", "SAMPLE(?b)", "MEDIAN(?b)", "GROUP_CONCAT(DISTINCT ?b)",
    "MAX(IF(EXISTS { GRAPH <urn:g> { ?m <urn:q> ?x } }, ?b, 0))",
)  # fmt: skip


@pytest.mark.parametrize("modifier", ["", "ORDER BY ?m", "HAVING (COUNT(*) > 0)"])
@pytest.mark.parametrize("aggregate", AGGREGATES)
@examples(2)
@given(st.integers(0, 2**32).map(Random))
def test_the_row_of_a_group_comes_once_for_each_new_solution(
    aggregate: str, modifier: str, random: Random
) -> None:
    window = random.choice(["NOW", "RANGE 3ms", "RANGE 20s", "TRIPLES 2", "ALL"])
    where = f"{{ STREAM <urn:s> [{window}] {{ ?b <urn:p> ?m }} }}"
    engine = Engine()
    text = f"SELECT ?m ({aggregate} AS ?z) {where} GROUP BY ?m {modifier}"
    groups = engine.register(text, semantics=CQELS)
    solutions = engine.register(f"SELECT ?m {where}", semantics=CQELS)
    present = engine.register(text, semantics=PAPER_RSTREAM)
    at = 0
    for _ in range(8):
        at += random.choice([0, 1, 5])
        names = [f"<urn:{random.choice('ab')}>" for _ in range(2)]
        triples = {(name, "<urn:p>", f"<urn:{random.choice('mn')}>") for name in names}
        engine.push("urn:s", sorted(triples), at)
        new = Counter(row[0] for each in solutions for row in each.rows)
        rows = {row[0]: row for each in present for row in each.rows}
        found = Counter(row for each in groups for row in each.rows)
        assert found == Counter({rows[key]: count for key, count in new.items()})


def test_rows_with_unbound_values_count_once() -> None:
    engine = Engine()
    groups = engine.register(
        "SELECT (COUNT(*) AS ?all) (COUNT(DISTINCT *) AS ?different) (SUM(?v) AS ?sum) {"
        " STREAM <urn:s> [RANGE 4ms] { ?x <urn:v> ?v }"
        " OPTIONAL { STREAM <urn:s> [RANGE 4ms] { ?x <urn:w> ?w } } VALUES ?z { 1 UNDEF } }"
    )
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    for node, predicate in [("a", "v"), ("b", "v"), ("a", "w")]:
        engine.push("urn:s", (f"<urn:{node}>", f"<urn:{predicate}>", f'"5"{integer}'), 1)
    # The row comes once for each new solution, and each element makes two of them.
    expected = [(2, 2, 10)] * 2 + [(4, 4, 20)] * 4
    assert [row for each in groups for row in each.rows] == [
        tuple(f'"{number}"{integer}' for number in each) for each in expected
    ]
