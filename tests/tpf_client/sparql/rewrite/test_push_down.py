"""Where filters, limits and constants go, by text; random queries elsewhere check answers."""

import pytest

from tpf_client.sparql.algebra import (
    BGP,
    Aggregate,
    Aggregated,
    Filter,
    Path,
    Pattern,
    Slice,
    Values,
    VariableRef,
    walk,
)
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.push_down import (
    filters_to_values,
    push_filters,
    push_limits,
    put_constants,
    split_values,
)
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


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("{ ?x :p ?y OPTIONAL { ?y :q ?z } } OFFSET 1 LIMIT 2", [2, 3]),
        ("{ { ?x :p ?y } UNION { ?x :q ?y } } LIMIT 2", [2]),
        (
            "{ { ?x :p ?y OPTIONAL { ?y :q ?z } } UNION { ?x :q ?y } } LIMIT 2",
            [2, 2, 2, 2],
        ),
        ("{ ?x :p ?y OPTIONAL { ?y :q ?z } } ORDER BY ?x LIMIT 2", [2, 2]),
        ("{ ?x :p ?y OPTIONAL { ?y :q ?z } } ORDER BY ?z LIMIT 2", [2]),
        ("{ ?x :p ?y FILTER(?y > 1) } LIMIT 2", [2]),
        ("{ ?x :p ?y OPTIONAL { ?y :q ?z } }", []),
    ],
)
def test_where_a_limit_goes(text: str, limits: list[int]) -> None:
    pattern = push_limits(parse_query(f"PREFIX : <http://e/> SELECT * {text}").pattern)
    found = [each.limit for each in patterns_in(pattern) if isinstance(each, Slice)]
    assert found == limits


def leaves(pattern: Pattern) -> set[str]:
    """The patterns that are asked for, as texts."""
    found = set()
    for each in walk(pattern):
        match each:
            case BGP(patterns):
                found |= {" ".join(quad[:3]).replace("http://e/", "") for quad in patterns}
            case Path(subject, _, object_):
                found.add(f"{subject} path {object_}".replace("http://e/", ""))
            case _:
                pass
    return found


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("BIND(:a AS ?x) ?x :p ?y", {"<a> <p> ?y"}),
        ("VALUES ?x { :a } ?x :p ?y", {"<a> <p> ?y"}),
        ("VALUES ?x { :a :b } ?x :p ?y", {"?x <p> ?y"}),
        ("VALUES (?x ?y) { (:a UNDEF) } ?x :p ?y", {"<a> <p> ?y"}),
        ("BIND(:a AS ?x) { ?x :p ?y } UNION { ?z :q ?x }", {"<a> <p> ?y", "?z <q> <a>"}),
        # What else uses the variable keeps it.
        ("VALUES ?x { :a } { ?x :p ?y FILTER(?x != :b) }", {"?x <p> ?y"}),
        ("VALUES ?x { :a } { ?x :p ?y BIND(STR(?x) AS ?z) }", {"?x <p> ?y"}),
        ("VALUES ?x { :a } { ?x :p ?y MINUS { ?x :q ?z } }", {"?x <p> ?y", "?x <q> ?z"}),
        ("VALUES ?x { :a } { ?x :p ?y MINUS { ?y :q ?z } }", {"<a> <p> ?y", "?y <q> ?z"}),
        ("VALUES ?x { :a } { ?x :p ?y FILTER EXISTS { ?x :q ?z } }", {"?x <p> ?y"}),
        # An optional part, only where the required one binds the variable.
        ("VALUES ?x { :a } { ?x :p ?y OPTIONAL { ?x :q ?z } }", {"<a> <p> ?y", "<a> <q> ?z"}),
        ("VALUES ?x { :a } { ?w :p ?y OPTIONAL { ?x :q ?y } }", {"?w <p> ?y", "?x <q> ?y"}),
        (
            "VALUES ?x { :a } { ?x :p ?y OPTIONAL { ?y :q ?z OPTIONAL { ?x :r ?z } } }",
            {"?x <p> ?y", "?y <q> ?z", "?x <r> ?z"},
        ),
        ("BIND(:a AS ?x) OPTIONAL { ?x :p ?y FILTER(?x != ?y) }", {"<a> <p> ?y"}),
        ("BIND(:a AS ?x) MINUS { ?x :p ?y }", {"?x <p> ?y"}),
        # What is projected away is another variable; what is cut off may be another solution.
        ("VALUES ?x { :a } { SELECT ?y { ?x :p ?y } }", {"?x <p> ?y"}),
        ("VALUES ?x { :a } { SELECT * { ?x :p ?y } LIMIT 1 }", {"?x <p> ?y"}),
        # A path of no steps from a variable begins at what the graph has.
        ("VALUES ?x { :a } ?x :p+ ?y", {"<a> path ?y"}),
        ("VALUES ?x { :a } ?x :p* ?y", {"?x path ?y"}),
    ],
)
def test_where_a_term_may_stand(group: str, expected: set[str]) -> None:
    assert leaves(put_constants(parsed(group))) - {""} == expected


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("VALUES (?x ?y) { (:a UNDEF) (UNDEF :b) } ?x :p ?y", {"<a> <p> ?y", "?x <p> <b>"}),
        # What has none of these variables is not repeated.
        (
            "VALUES (?x ?y) { (:a UNDEF) (UNDEF :b) } ?x :p ?y . ?y :q ?z . ?z :r ?w",
            {"<a> <p> ?y", "?x <p> <b>", "?y <q> ?z", "<b> <q> ?z", "?z <r> ?w"},
        ),
        ("VALUES (?x ?y) { (:a UNDEF) (UNDEF :b) } OPTIONAL { ?x :p ?y }",
         {"<a> <p> ?y", "?x <p> <b>"}),
        # A row without values meets everything; a limit may let through others the next time.
        ("VALUES (?x ?y) { (:a UNDEF) (UNDEF UNDEF) } ?x :p ?y", {"?x <p> ?y"}),
        ("VALUES (?x ?y) { (:a UNDEF) (UNDEF :b) } { SELECT * { ?x :p ?y } LIMIT 1 }",
         {"?x <p> ?y"}),
    ],
)  # fmt: skip
def test_where_rows_with_other_variables_go_their_own_way(group: str, expected: set[str]) -> None:
    assert leaves(put_constants(split_values(parsed(group)))) - {""} == expected


def test_a_pattern_is_repeated_for_few_kinds_of_rows_only() -> None:
    names = [f"?v{n}" for n in range(6)]
    some = [["UNDEF" if k >> n & 1 else ":a" for n in range(6)] for k in range(63)]
    data = " ".join(f"({' '.join(row)})" for row in some)
    group = " . ".join(f"{name} :p ?x" for name in names)
    pattern = parsed(f"VALUES ({' '.join(names)}) {{ {data} }} {group}")
    assert split_values(pattern) == pattern
