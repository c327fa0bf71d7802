"""The servers that are measured."""

from datetime import timedelta
from pathlib import Path

import requests

from annotations.clock import SystemClock
from annotations.terms import DEFAULT_GRAPH, Quad, iri, literal
from experiments.harness.servers import TOKEN, fragment_server
from experiments.studies.processes import push_facts


def test_a_server_knows_nothing_of_one_before_it_in_the_same_folder(tmp_path: Path) -> None:
    """Otherwise repeated batch ids would be ignored."""
    end = SystemClock().now() + timedelta(hours=1)
    for name in ("one", "other"):
        with fragment_server(tmp_path, "[datasets.board]\nlive = true\n") as server:
            order = {"url": f"{server.url}board", "token": TOKEN}
            fact = Quad(iri("urn:s"), iri("urn:p"), literal(name), DEFAULT_GRAPH)
            push_facts(order, [fact], end, number=0)
            page = requests.get(f"{server.url}board.nt", timeout=60).text
            assert f'<urn:s> <urn:p> "{name}"' in page
            assert page.count("<urn:s> <urn:p>") == 1
