"""Queries of all shapes: the right answers, with no more requests than Comunica."""

from collections.abc import Iterator
from typing import Any

import pyoxigraph
import pytest
from rdflib import Graph

from experiments.workloads.shop import QUERIES
from tests.support.live_server import LiveServer
from tests.support.oracle import SolutionBag, bag, store_of
from tests.support.shapes import COMUNICA, SERVER, right, shop
from tpf_client import Client, Solutions


@pytest.fixture(scope="module")
def oracle() -> pyoxigraph.Store:
    return store_of(shop())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path_factory.mktemp("shop"), shop(), live=False, server=dict(SERVER))
    yield server
    server.close()


def ask(server: LiveServer, query: str) -> tuple[SolutionBag | set[Any] | bool, int, int]:
    """The answer to a query, how many requests it took, and how many before its first part."""
    del server.log[:]
    rows: list[dict[str, str]] = []
    first = 0
    with Client(server.url, session=server.session(), clock=server.clock,
                parallelism=0) as client:  # fmt: skip
        answer = client.query(query)
        if isinstance(answer, Graph):
            found: Any = {tuple(term.n3() for term in triple) for triple in answer}
            return found, len(server.log), len(server.log)
        if not isinstance(answer, Solutions):
            return answer, len(server.log), len(server.log)
        for row in answer:
            first = first or len(server.log)
            pairs = zip(answer.variables, row.row, strict=True)
            rows.append({f"?{name}": term for name, term in pairs if term is not None})
    return bag(rows), len(server.log), first or len(server.log)


def test_every_shape_is_compared() -> None:
    assert list(COMUNICA) == list(QUERIES)
    assert len(QUERIES) >= 40


@pytest.mark.parametrize("shape", QUERIES)
def test_no_shape_takes_more_requests_than_comunica(
    server: LiveServer, oracle: pyoxigraph.Store, shape: str
) -> None:
    found, requests, _ = ask(server, QUERIES[shape])
    assert right(oracle, shape, found)
    most, _ = COMUNICA[shape]
    assert requests <= most
