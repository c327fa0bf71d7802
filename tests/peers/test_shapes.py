"""Comunica takes as many requests for queries of all shapes as we say that it does."""

from pathlib import Path
from typing import Any

from experiments.workloads.shop import SHOP_QUERIES, Shop
from tests.support.oracle import bag, store_of
from tests.support.peers import COMUNICA as PEER
from tests.support.peers import Comunica
from tests.support.running_server import RunningServer
from tests.support.shapes import COMUNICA, SERVER, TRIPLES, right, shop

CONFIG = "".join(f"{name} = {value}\n" for name, value in SERVER.items())


@PEER.needed
def test_the_requests_of_comunica(tmp_path: Path) -> None:
    Shop(TRIPLES, seed=1).write(tmp_path / "shop.nq")
    oracle = store_of(shop())
    fewer = {}
    with (
        RunningServer(
            tmp_path, f'{CONFIG}[datasets.shop]\nsource = "shop.nq"\nlive = false\n'
        ) as server,
        Comunica() as comunica,
    ):
        for shape, query in SHOP_QUERIES.items():
            answer = comunica.ask(query, f"{server.url}shop")
            found: Any = answer.get("boolean")
            if "bindings" in answer:
                found = bag(answer["bindings"])
            elif "quads" in answer:
                found = {quad[:3] for quad in answer["quads"]}
            assert right(oracle, shape, found), shape
            # With a limit, what is under way when it is met differs from run to run.
            least = 0.5 if shape in ("limit", "ask") else 0.9
            if len(answer["requests"]) < least * COMUNICA[shape][0]:
                fewer[shape] = len(answer["requests"])
    assert fewer == {}
