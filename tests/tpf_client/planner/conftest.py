"""A shop on plain fragments, which takes a while to make, and what it answered."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import pyoxigraph
import pytest
from rdflib import Graph

from tests.support.live_server import LiveServer
from tests.support.oracle import SolutionBag, bag, store_of
from tests.support.shapes import SERVER, shop
from tests.support.shop import SHOP_QUERIES
from tpf_client import Solutions
from tpf_client.planner.leaves import Step
from tpf_client.queries import QueryOptions

Answered: TypeAlias = tuple[SolutionBag | set[Any] | bool, int, int]
"""The answer to a query, how many requests it took, and how many before its first part."""
ShapeAnswer: TypeAlias = Callable[[str], Answered]


@pytest.fixture(scope="session")
def oracle() -> pyoxigraph.Store:
    """The shop in another engine."""
    return store_of(shop())


@pytest.fixture(scope="session")
def plain_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The shop on plain fragments, as Comunica's requests were counted."""
    with LiveServer(
        tmp_path_factory.mktemp("shop"), shop(), live=False, server=dict(SERVER)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def shape_answer(plain_shop: LiveServer) -> ShapeAnswer:
    """What the query of a shape is answered, one request after the other: asked once for all."""
    return cache(lambda shape: ask(plain_shop, SHOP_QUERIES[shape]))


def ask(server: LiveServer, query: str, plan: list[Step] | None = None) -> Answered:
    """Ask one request after the other, without anything kept from before."""
    del server.log[:]
    rows: list[dict[str, str]] = []
    first = 0
    with server.client() as client:
        answer = client.query(query, options=QueryOptions(plan=plan))
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
