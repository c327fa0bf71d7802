"""Conditions taken apart and put together."""

import pytest

from tpf_client.sparql.algebra import Exists, Expression, Filter
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.visitor import (
    conjunction,
    conjuncts,
    exists_in,
    first_exists,
    movable,
)


def condition(text: str) -> Expression:
    pattern = parse_query(f"SELECT * {{ ?a ?b ?c FILTER({text}) }}").pattern.input  # type: ignore[union-attr]
    assert isinstance(pattern, Filter)
    return pattern.condition


def test_a_conjunction_is_what_it_was_taken_apart_into() -> None:
    whole = condition("?a > 1 && (?b || ?c) && (?a && ?b)")
    parts = list(conjuncts(whole))
    assert len(parts) == 4
    again = conjunction(parts)
    assert again is not None
    assert list(conjuncts(again)) == parts
    assert conjunction(()) is None


def test_a_negated_exists_is_one_condition() -> None:
    negated, positive = conjuncts(condition("!(EXISTS { ?a ?b ?d }) && !(NOT EXISTS { ?a ?b ?d })"))
    assert isinstance(negated, Exists)
    assert isinstance(positive, Exists)
    assert (negated.negated, positive.negated) == (True, False)


def test_exists_is_found_in_expressions_but_not_in_patterns() -> None:
    inner = "EXISTS { ?a ?b ?d FILTER EXISTS { ?d ?e ?f } }"
    found = list(exists_in(condition(f"IF({inner}, ?a, COALESCE(?b, NOT EXISTS {{ ?x ?y ?z }}))")))
    assert [each.negated for each in found] == [False, True]
    assert first_exists(condition("?a")) is None


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("?a + 1 > STRLEN(?b)", True),
        ("RAND() > 0.5", False),
        ("?a && STRUUID() = ?b", False),
        ("?a || EXISTS { ?a ?b ?d }", False),
    ],
)
def test_only_functions_of_variables_move(text: str, moves: bool) -> None:
    assert movable(condition(text)) is moves
