"""The walk through algebra, and conditions taken apart."""

import pytest

from tpf_client.sparql.algebra import (
    BGP,
    Exists,
    Expression,
    Filter,
    Path,
    Pattern,
    Service,
)
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.visitor import (
    conjuncts,
    everything,
    exists_in,
    first_exists,
    movable,
    patterns_in,
    transformed,
    with_exists,
)

TEXT = """PREFIX : <http://e/> SELECT (COUNT(?x) AS ?n) {
  ?x :p ?y OPTIONAL { ?x :q+ ?z FILTER(?z > ?y) } MINUS { VALUES ?x { :a UNDEF } }
  FILTER(?y > 1 && NOT EXISTS { ?y :r ?w FILTER EXISTS { ?w :s ?x } })
  SERVICE :there { ?y :t ?v }
} GROUP BY ?y ORDER BY ?y LIMIT 3"""
PATTERN = parse_query(TEXT).pattern


def predicates(pattern: Pattern) -> list[str]:
    found = [each for each in patterns_in(pattern) if isinstance(each, BGP)]
    return [quad.predicate[-2] for bgp in found for quad in bgp.patterns]


def test_everything_is_met_in_the_order_of_the_text() -> None:
    assert predicates(PATTERN) == ["p", "t", "r", "s"]
    assert sum(isinstance(each, Path) for each in everything(PATTERN)) == 1
    assert "?w" in set(everything(PATTERN))


def test_what_is_inside_some_types_is_left_out() -> None:
    met = list(everything(PATTERN, Service))
    assert any(isinstance(each, Service) for each in met)
    assert "<http://e/t>" not in met
    assert "<http://e/t>" in set(everything(PATTERN))


def without_filters(pattern: Pattern) -> Pattern:
    return pattern.input if isinstance(pattern, Filter) else pattern


def test_changes_reach_patterns_in_exists_innermost_first() -> None:
    changed = transformed(PATTERN, without_filters)
    # Only the condition of OPTIONAL is no Filter.
    assert predicates(changed) == ["p", "t"]
    seen: list[list[str]] = []

    def note(pattern: Pattern) -> Pattern:
        seen.append(sorted(predicates(pattern)))
        return pattern

    with_exists(PATTERN, note)
    assert seen == [["s"], ["r", "s"]]


def condition(text: str) -> Expression:
    pattern = parse_query(f"SELECT * {{ ?a ?b ?c FILTER({text}) }}").pattern.input  # type: ignore[union-attr]
    assert isinstance(pattern, Filter)
    return pattern.condition


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
