"""Which variables occur where."""

from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.visitor import counts_whole_rows, occurrences


def test_occurrences_count_those_in_exists_too() -> None:
    query = parse_query("SELECT ?x { ?x ?p ?x FILTER EXISTS { ?x ?q 1 FILTER(?q > 1) } }")
    assert occurrences(query.pattern) == {"?x": 4, "?p": 1, "?q": 2}


def test_only_a_distinct_count_of_everything_looks_at_whole_rows() -> None:
    for text, whole in [("COUNT(DISTINCT *)", True), ("COUNT(*)", False), ("COUNT(?x)", False)]:
        query = parse_query(f"SELECT * {{ {{ SELECT ({text} AS ?n) {{ ?x ?p ?o }} }} }}")
        assert counts_whole_rows(query) is whole
