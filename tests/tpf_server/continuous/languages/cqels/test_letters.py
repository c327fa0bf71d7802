"""Literals keep their spelling through both languages."""

import pytest

from tests.support.any_language import register
from tpf_server.continuous.continuous_engine import Engine

XSD = "http://www.w3.org/2001/XMLSchema#"
LITERALS = [
    f'"{text}"^^<{XSD}{kind}>'
    for kind, texts in {
        "double": ["2.5", "2.5E0", "2.50e0", "+2.5", "INF"],
        "float": ["2.5", "02.5"],
        "decimal": ["2.5", "2.50", "+2.5", "02.5", ".5", "2."],
        "integer": ["7", "07", "+7", "-0"],
        "boolean": ["true", "1", "0"],
        "dateTime": ["2020-01-02T03:04:05Z", "2020-01-02T03:04:05.0Z", "2020-01-02T03:04:05+00:00"],
    }.items()
    for text in texts
]
WAYS = {
    "plain": "?d :p ?v BIND (?v AS ?x)",
    "bind": "?d :p ?v BIND (IF(BOUND(?d), ?v, 1) AS ?x)",
    "coalesce": "?d :p ?v BIND (COALESCE(?none, ?v) AS ?x)",
    "optional": "?d :p ?v OPTIONAL { ?d :p ?x }",
    "group": "{ SELECT (?v AS ?x) { ?d :p ?v } GROUP BY ?v }",
    **{
        name: f"{{ SELECT ({name}(?v) AS ?x) {{ ?d :p ?v }} }}" for name in ("MIN", "MAX", "SAMPLE")
    },
    "order": "{ SELECT (?v AS ?x) { ?d :p ?v } ORDER BY ?v LIMIT 1 }",
    "static": "?d :p ?v . ?v2 :static ?x FILTER (SAMETERM(?v, ?x))",
}


@pytest.mark.parametrize("language", ["cqels", "csparql"])
@pytest.mark.parametrize("way", WAYS)
def test_literals_keep_their_letters(way: str, language: str) -> None:
    for literal in LITERALS:
        select = "SELECT ?x (STR(?x) AS ?s) (STRLEN(STR(?x)) AS ?n)"
        where = WAYS[way]
        engine = Engine()
        if language == "cqels":
            for inside in ("?d :p ?v", "?d :p ?x"):
                where = where.replace(inside, f"STREAM <urn:s> [NOW] {{ {inside} }}")
            text = f"{select} {{ {where} }}"
        else:
            text = f"{select} FROM STREAM <urn:s> [RANGE 1s STEP 1s] {{ {where} }}"
        engine.add([("<urn:x>", "<http://e/static>", literal)])
        query = register(engine, f"PREFIX : <http://e/> {text}")
        engine.push("urn:s", ("<urn:d>", "<http://e/p>", literal), 1)
        engine.advance(1000)
        lexical = literal.split('"')[1]
        rows = {row for each in query for row in each.rows if row[0] is not None}
        assert rows == {(literal, f'"{lexical}"', f'"{len(lexical)}"^^<{XSD}integer>')}, literal
