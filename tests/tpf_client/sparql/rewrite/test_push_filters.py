"""Targets of filters, by text; random queries elsewhere check answers."""

import pytest

from tpf_client.sparql.algebra import (
    BGP,
    Aggregate,
    Aggregated,
    Filter,
    Pattern,
    Values,
    VariableRef,
)
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.push_down import filters_to_values, push_filters
from tpf_client.sparql.rewrite.visitor import patterns_in
from tpf_client.sparql.scopes import variables_in


def parsed(group: str) -> Pattern:
    return parse_query(f"PREFIX : <http://e/> SELECT * {{ {group} }}").pattern


def places(pattern: Pattern) -> dict[str, str]:
    """Return the kind of pattern that each condition is tested on."""
    return {
        " ".join(sorted(variables_in(each.condition))): type(each.input).__name__
        for each in patterns_in(pattern)
        if isinstance(each, Filter)
    }


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("?x :p ?y OPTIONAL { ?y :q ?z } FILTER(?y > 1)", {"?y": "BGP"}),
        ("?x :p ?y OPTIONAL { ?y :q ?z } FILTER(?z > 1)", {"?z": "LeftJoin"}),
        ("?x :p ?y OPTIONAL { ?y :q ?z FILTER(?z > 1) }", {"?z": "BGP"}),
        ("?x :p ?y MINUS { ?y :q ?z FILTER(?z > 1) } FILTER(?x > 1)", {"?x": "BGP", "?z": "BGP"}),
        ("{ ?x :p ?y } UNION { ?x :q ?z } FILTER(?y > ?z)", {"?y ?z": "BGP"}),
        (
            "?x :p ?y BIND(?y + 1 AS ?z) FILTER(?y > 1) FILTER(?z > 1)",
            {"?y": "BGP", "?z": "Extend"},
        ),
        ("{ SELECT DISTINCT ?x { ?x :p ?y } } FILTER(?x > 1)", {"?x": "BGP"}),
        # A LIMIT chooses; a group is whole; RAND() is asked once for each solution.
        ("{ SELECT ?x { ?x :p ?y } LIMIT 1 } FILTER(?x > 1)", {"?x": "Slice"}),
        ("{ SELECT ?x { ?x :p ?y } GROUP BY ?x } FILTER(?x > 1)", {"?x": "Group"}),
        ("{ ?x :p ?y } UNION { ?x :q ?y } FILTER(?x > RAND())", {"?x": "Union"}),
    ],
)
def test_where_a_filter_goes(group: str, expected: dict[str, str]) -> None:
    assert places(push_filters(parsed(group))) == expected


def test_below_an_aggregation_go_conditions_on_whole_groups() -> None:
    pattern = parsed("?x :p ?y FILTER(?x > 1 && ?y > 1)")
    condition = next(each for each in patterns_in(pattern) if isinstance(each, Filter))
    bgp = next(each for each in patterns_in(pattern) if isinstance(each, BGP))
    x, _, y = (quad for quad in bgp.patterns[0][:3])
    total = Aggregate("SUM", VariableRef(y))  # type: ignore[arg-type]
    aggregated = Aggregated(bgp, "?t", total, (x,))  # type: ignore[arg-type]
    after = push_filters(Filter(aggregated, condition.condition))
    assert places(after) == {"?x": "BGP", "?y": "Aggregated"}


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("?x = :a", 1),
        (":a = ?x", 1),
        ("?x IN (:a, :b, :a)", 2),
        ("?x = 1", None),  # other numbers are equal to it
        ("?x IN (:a, ?y)", None),
        ("?z = :a", None),  # an error, not a join
    ],
)
def test_conditions_that_name_iris_become_inline_data(condition: str, rows: int | None) -> None:
    pattern = filters_to_values(push_filters(parsed(f"?x :p ?y FILTER({condition})")))
    found = [each for each in patterns_in(pattern) if isinstance(each, Values)]
    assert [len(each.rows) for each in found] == ([] if rows is None else [rows])
    assert bool(places(pattern)) is (rows is None)
