"""Query 4 of CSRBench, where its oracle and the definition differ: the empty window.

The stream ends with a graph at second 33 with one sensor above 80 degrees. Four seconds later the
window has none, and the average of nothing is 0 (SPARQL 1.1, section 18.5.1.4): a new solution, so
it is in the difference of two answers (paper 000). The benchmark's oracle, set to report only
non-empty windows for CQELS, lacks this row.

Source: https://github.com/dellaglio/csrbench-oracle
"""

from collections import Counter

from tests.support.continuous_reference import Arrival, Beside
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.semantics import PAPER

XSD = "http://www.w3.org/2001/XMLSchema#"
QUERY = """SELECT (AVG(?value) AS ?avg) WHERE { STREAM <urn:test> [RANGE 4s SLIDE 4s] {
?obs <urn:observedProperty> <urn:AirTemperature> . ?obs <urn:result> ?res .
?res <urn:floatValue> ?value
} FILTER(?value > 80) }"""
LAST = {"C0947": 63, "C1227": 50, "C0964": 75, "C1192": 83, "C0817": 77}
"""Air temperatures at second 33, by sensor: the only one above 80, and some of the others."""


def test_a_window_that_runs_empty_has_an_average() -> None:
    triples = []
    for sensor, degrees in LAST.items():
        observation, result = f"<urn:{sensor}/33>", f"<urn:{sensor}/33/result>"
        triples += [
            (observation, "<urn:observedProperty>", "<urn:AirTemperature>"),
            (observation, "<urn:result>", result),
            (result, "<urn:floatValue>", f'"{degrees}"^^<{XSD}double>'),
        ]
    engine = Engine()
    query = engine.register(QUERY, semantics=PAPER)
    beside = Beside(QUERY, "")
    beside.reference.arrive(Arrival("urn:test", 33_000, tuple(triples)))
    engine.push("urn:test", triples, 33_000)
    engine.advance(44_000)
    # At 33 s the window of the boundary before is in force, and it is empty.
    expected = [(33_000, 0), (36_000, 83), (40_000, 0)]
    found = [(each.at, float(str(each.rows[0][0]).split('"')[1])) for each in query]
    assert found == expected
    # The definition itself, at every second.
    before: Counter[tuple[str | None, ...]] = Counter()
    defined = []
    for at in range(33_000, 45_000, 1_000):
        now = beside.reference.solutions(at)
        defined += [(at, float(str(row[0]).split('"')[1])) for row in now - before]
        before = now
    assert defined == expected
