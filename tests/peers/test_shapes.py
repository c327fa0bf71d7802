"""Comunica takes as many requests for queries of all shapes as we say that it does."""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyoxigraph
import pytest

from tests.support.examples import TIMES
from tests.support.live_server import LiveServer
from tests.support.oracle import bag, select, store_of
from tests.support.peers import COMUNICA as PEER
from tests.support.peers import Comunica
from tests.support.running_server import RunningServer
from tests.support.shapes import COMUNICA, SERVER, TRIPLES, RandomShape, right, shop
from tests.support.shop import SHOP, SHOP_QUERIES, Shop
from tests.tpf_client.planner.conftest import ask

CONFIG = "".join(f"{name} = {value}\n" for name, value in SERVER.items())
# The shapes for which Comunica takes more requests are counted in deep runs only.
MOST_REQUESTS = 300 if TIMES == 1 else 10_000


@pytest.fixture(scope="module")
def store() -> pyoxigraph.Store:
    return store_of(shop())


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Comunica, asked over a server of the shop."""
    folder = tmp_path_factory.mktemp("shop")
    Shop(TRIPLES, seed=1).write(folder / "shop.nq")
    dataset = '[datasets.shop]\nsource = "shop.nq"\nlive = false\n'
    with RunningServer(folder, CONFIG + dataset) as server, Comunica() as comunica:
        yield lambda query: comunica.ask(query, f"{server.url}shop")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path_factory.mktemp("ours"), shop(), live=False, server=dict(SERVER))
    yield server
    server.close()


@PEER.needed
def test_the_requests_of_comunica(
    theirs: Callable[[str], dict[str, Any]], store: pyoxigraph.Store
) -> None:
    fewer = {}
    for shape, query in SHOP_QUERIES.items():
        if COMUNICA[shape][0] > MOST_REQUESTS:
            continue
        answer = theirs(query)
        found: Any = answer.get("boolean")
        if "bindings" in answer:
            found = bag(answer["bindings"])
        elif "quads" in answer:
            found = {quad[:3] for quad in answer["quads"]}
        assert right(store, shape, found), shape
        # With a limit, what is under way when it is met differs from run to run.
        least = 0.5 if shape in ("limit", "ask") else 0.9
        if len(answer["requests"]) < least * COMUNICA[shape][0]:
            fewer[shape] = len(answer["requests"])
    assert fewer == {}


MORE = {
    # Rows that leave different variables open: which order is best differs from row to row.
    "values": (60, 0.1, 5.0),
    # Whether keys or pages meet a limit sooner depends on where the matches lie.
    "limited": (8, 0.35, 2.0),
    # A small part of the requests for the whole fragments is risked for a few keys.
    "nothing": (4, 1.0, 1.1),
    "some": (6, 0.4, 4.0),
    # The same, where something else may take every solution away.
    "absent": (4, 0.5, 2.0),
    "optional": (4, 0.2, 2.0),
    "different": (4, 0.1, 1.2),
    "first_ones": (4, 0.0, 1.0),
}
"""So many random queries of a kind; the part that may take more requests than Comunica, and how
many times as many at most."""


@PEER.needed
@pytest.mark.parametrize("kind", MORE)
def test_random_shapes_take_fewer_requests_than_comunica(
    ours: LiveServer,
    theirs: Callable[[str], dict[str, Any]],
    store: pyoxigraph.Store,
    kind: str,
) -> None:
    """All together; few of them take more, and none as many as it would to read everything."""
    count, part, times = MORE[kind]
    counts = []
    for number in range(count * TIMES):
        shape = RandomShape(Random(f"{kind} {number}"))
        query = f"PREFIX : <{SHOP}> {getattr(shape, kind)()}"
        found, sent, _ = ask(ours, query)
        answer = theirs(query)
        whole, _, limit = query.partition(" LIMIT ")
        if kind == "first_ones" or not limit:
            assert found == bag(select(store, query)) == bag(answer["bindings"]), query
        else:
            everything = bag(select(store, whole))
            assert isinstance(found, Counter)
            assert found <= everything, query
            assert found.total() == min(int(limit), everything.total()), query
        counts.append((sent, len(answer["requests"]), query))
    more = [each for each in counts if each[0] > each[1]]
    assert sum(sent for sent, _, _ in counts) < sum(requests for _, requests, _ in counts)
    assert len(more) <= part * len(counts), more
    assert [each for each in more if each[0] > times * each[1]] == []
