"""CityBench's queries on Aarhus' sensors, against a recomputation of every step."""

from collections import Counter
from pathlib import Path

import pyoxigraph as ox
import pytest

from tests.support.citybench import SharedGraph, readings, static_store
from tests.support.continuous_reference import Reference
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.languages.cqels.parser import parse
from tpf_server.continuous.runtime.semantics import PAPER

DATA = Path(__file__).parents[6] / "shared" / "data" / "citybench"
NAMES = [f"Q{number}" for number in range(1, 13)]
# Where hundreds of events meet every reading, a few readings do.
READINGS = {"Q4": 4, "Q5": 3, "Q8": 1, "Q9": 2, "Q10": 3, "Q2": 2}


@pytest.fixture(scope="module")
def store():
    if not DATA.exists():
        pytest.skip("the shared data are absent")
    return static_store(DATA)


@pytest.mark.parametrize("name", NAMES)
def test_query(store, name):
    text = (DATA / "queries" / "cqels" / f"{name}.rq").read_text()
    query = parse(text)
    engine = Engine(EngineSettings(semantics=PAPER))
    engine.attach(SharedGraph(store, ox.DefaultGraph()))
    for graph in ("culturalevents", "libraryevents"):
        iri = f"http://localhost/{graph}"
        engine.attach(SharedGraph(store, ox.NamedNode(iri)), iri)
    emissions = {}
    engine.register(text, lambda emission: emissions.__setitem__(emission[:2], emission))

    arrivals = sorted(
        (
            arrival
            for stream in dict.fromkeys(clause.stream for clause in query.windows)
            for arrival in readings(DATA, stream.rsplit("#", 1)[1][:-1], READINGS.get(name, 12))
        ),
        key=lambda arrival: (arrival.at, arrival.stream),
    )
    reference = Reference(_for_sparql(text), store)
    before = Counter()
    rows = last = 0
    try:
        for sequence, arrival in enumerate(arrivals, 1):
            if last and arrival.at != last:
                before = reference.solutions(arrival.at - 1)
            last = arrival.at
            reference.arrive(arrival)
            engine.push(arrival.stream, arrival.triples, arrival.at)
            now = reference.solutions(arrival.at)
            emission = emissions.get((sequence, arrival.at))
            assert Counter(emission.rows if emission else ()) == now - before, sequence
            rows += sum((now - before).values())
            before = now
    finally:
        reference.close()
    assert bool(rows) == (name not in NO_RESULTS)


# In these readings no garage is full.
NO_RESULTS = ("Q7",)


def _for_sparql(text):
    """Return the query without comments, FROM NAMED and relative names."""
    lines = (line.split("###")[0] for line in text.splitlines())
    lines = (line for line in lines if not line.strip().startswith("#"))
    lines = (line.split(" #?")[0] for line in lines if not line.startswith("from named"))
    return "BASE <http://localhost/>\n" + "\n".join(lines)
