"""The examples of the page on RSP-QL run as they stand."""

import re
from pathlib import Path

from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer

PAGE = Path(__file__).parents[2] / "docs" / "rspql.md"
READINGS = "http://example.org/readings"
ROOMS = "http://example.org/rooms#"


def example(language: str, number: int = 0) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    return str(found[number])


def test_the_query_over_two_windows_of_one_stream() -> None:
    engine = Engine()
    answers: list[PeriodicAnswer] = []
    engine.register_rspql(example("sparql"), answers.append)
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    for second, degrees in ((5, 18), (58, 22), (63, 20)):
        triple = ("<urn:hall>", f"<{ROOMS}degrees>", f'"{degrees}"{integer}')
        engine.push(READINGS, triple, 1000 * second)
    engine.advance(70_000)
    # The reading of 5 s is in the past window of (0 s, 10 s], seen from 50 s to 60 s.
    assert [(each.at, each.rows) for each in answers] == [
        (60_000, (("<urn:hall>", f"<{ROOMS}warmerBy>", f'"4"{integer}'),))
    ]


def test_graphs_of_elements() -> None:
    engine = Engine()
    answers: list[PeriodicAnswer] = []
    engine.register_rspql(example("sparql", 1), answers.append)
    trips = "http://example.org/trips#"
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    for name, distance in (("<urn:short>", 1), ("<urn:long>", 3)):
        ride = ("<urn:ride>", f"<{trips}distance>", f'"{distance}"{integer}')
        engine.push(f"{trips}trips", ride, 100, name)
        engine.push(f"{trips}trips", (name, f"<{trips}at>", '"noon"'), 200)
    engine.advance(1_500)
    (answer,) = answers
    assert set(answer.rows) == {
        ("<urn:ride>", f"<{trips}distance>", f'"3"{integer}', "<urn:long>"),
        ("<urn:long>", f"<{trips}at>", '"noon"', None),
    }
