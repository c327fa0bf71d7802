"""Terms in place of variables: where that may be, and where not."""

import pytest

from tpf_client.sparql.algebra import BGP, Path, Pattern, walk
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.put_constants import put_constants


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
