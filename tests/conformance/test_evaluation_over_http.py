"""The W3C's evaluation tests of SPARQL 1.0 and 1.1, with the real client and server.

The data of each test are a dataset, its named graphs Quad Pattern Fragments.
"""

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import pyoxigraph as ox
import pytest
import rdflib

from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tests.support.live_server import LiveServer
from tests.support.w3c import (
    Case,
    compared_rows,
    evaluations,
    expected_solutions,
    needed,
    read_quads,
    same_rows,
)
from tpf_client import Client

pytestmark = needed()

SKIPPED: dict[str, str] = {}
"""Names of tests, with the reason and the sentence of the specification."""

QUERIES = evaluations()


class Servers:
    """A server for each set of data, shared by tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._running: dict[tuple[Quad, ...], LiveServer] = {}

    def of(self, quads: list[Quad]) -> LiveServer:
        data = tuple(quads)
        if data not in self._running:
            folder = self._folder / str(next(self._numbers))
            folder.mkdir()
            # Small pages and blocks, so that there is something to follow.
            self._running[data] = LiveServer(
                folder, data, live=False, page_size=3, server={"max_values": 3, "max_page_size": 5}
            )
        return self._running[data]

    def close(self) -> None:
        for server in self._running.values():
            server.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("w3c"))
    yield servers
    servers.close()


def test_every_skip_names_a_test() -> None:
    assert SKIPPED.keys() <= {case.name for case in QUERIES}


@pytest.mark.parametrize("case", QUERIES, ids=lambda case: case.name)
def test_evaluation(case: Case, servers: Servers) -> None:
    if case.name in SKIPPED:
        pytest.skip(SKIPPED[case.name])
    assert case.result is not None
    server = servers.of(case.quads())
    with Client(server.url, session=server.session(), clock=server.clock,
                parallelism=0) as client:  # fmt: skip
        answer = client.query(case.text, base=case.base)
        if isinstance(answer, rdflib.Graph):
            made = sorted(_triples(answer))
            wanted = {quad.triple for quad in read_quads(case.result, DEFAULT_GRAPH)}
            assert same_rows(made, sorted(wanted)), made
        elif isinstance(answer, bool):
            assert answer is expected_solutions(case.result)
        elif case.result.suffix == ".csv":
            made_rows = sorted(csv.reader(io.StringIO(answer.serialize("csv"), newline="")))
            assert made_rows == sorted(csv.reader(case.result.open(encoding="utf-8", newline="")))
        else:
            compared_rows(case, answer.variables, (solution.row for solution in answer))


def _triples(graph: rdflib.Graph) -> Iterator[tuple[Term, ...]]:
    for quad in ox.parse(graph.serialize(format="nt"), format=ox.RdfFormat.N_TRIPLES):
        yield tuple(Term(str(each)) for each in (quad.subject, quad.predicate, quad.object))
