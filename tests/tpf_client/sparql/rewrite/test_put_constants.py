"""Substitution of terms for variables, where allowed."""

import pytest

from tpf_client.sparql.algebra import BGP, Path, Pattern, walk
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.push_down import put_constants, split_values


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
    query = parse_query(f"PREFIX : <http://e/> SELECT * {{ {group} }}")
    assert leaves(put_constants(query.pattern)) - {""} == expected


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
    query = parse_query(f"PREFIX : <http://e/> SELECT * {{ {group} }}")
    assert leaves(put_constants(split_values(query.pattern))) - {""} == expected


def test_a_pattern_is_repeated_for_few_kinds_of_rows_only() -> None:
    names = [f"?v{n}" for n in range(6)]
    some = [["UNDEF" if k >> n & 1 else ":a" for n in range(6)] for k in range(63)]
    data = " ".join(f"({' '.join(row)})" for row in some)
    group = " . ".join(f"{name} :p ?x" for name in names)
    query = parse_query(
        f"PREFIX : <http://e/> SELECT * {{ VALUES ({' '.join(names)}) {{ {data} }} {group} }}"
    )
    assert split_values(query.pattern) == query.pattern
