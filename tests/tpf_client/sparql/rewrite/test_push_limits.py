"""Targets of limits, by text."""

import pytest

from tpf_client.sparql.algebra import Slice
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.push_down import push_limits
from tpf_client.sparql.rewrite.visitor import patterns_in


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
