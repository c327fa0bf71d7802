"""COUNT(DISTINCT *) over windows, with rows that lack values."""

from tpf_server.continuous.continuous_engine import Engine

INTEGER = "^^<http://www.w3.org/2001/XMLSchema#integer>"


def test_rows_with_unbound_values_count_once() -> None:
    engine = Engine()
    found = engine.register(
        "SELECT (COUNT(*) AS ?all) (COUNT(DISTINCT *) AS ?different) (SUM(?v) AS ?sum) {"
        " STREAM <urn:s> [RANGE 4ms] { ?x <urn:v> ?v }"
        " OPTIONAL { STREAM <urn:s> [RANGE 4ms] { ?x <urn:w> ?w } } VALUES ?z { 1 UNDEF } }"
    )
    for node, predicate in [("a", "v"), ("b", "v"), ("a", "w")]:
        engine.push("urn:s", (f"<urn:{node}>", f"<urn:{predicate}>", f'"5"{INTEGER}'), 1)
    rows = [row for emission in found for row in emission.rows]
    # The row comes once for each new solution, and each element makes two of them.
    expected = [(2, 2, 10)] * 2 + [(4, 4, 20)] * 4
    assert rows == [tuple(f'"{number}"{INTEGER}' for number in each) for each in expected]
