"""``client``: a small run with real servers and clients."""

from pathlib import Path
from typing import Any

import pytest

from experiments.errors import UnavailableError
from experiments.harness import peers
from experiments.harness.report import write_report
from experiments.harness.results import Results
from experiments.harness.servers import OURS, REFERENCE
from experiments.studies.client import (
    COMPARED,
    COMUNICA,
    COMUNICA_BRTPF,
    OURS_PLAIN,
    RESTRICTED,
    SHOP_QUERIES,
    Clients,
    Shop,
    right_answers,
)
from tests.experiments.harness.test_runner import run


def test_the_shop_has_about_so_many_triples_and_an_answer_for_every_query(tmp_path: Path) -> None:
    file = tmp_path / "shop.nq"
    count = Shop(100_000, 1).write(file)
    assert count == pytest.approx(100_000, rel=0.05)
    lines = file.read_text().splitlines()
    assert len(set(lines)) == len(lines) == count
    answers = right_answers(file, SHOP_QUERIES)
    for name, rows in answers.items():
        assert rows, name
    assert answers["ask"] == {("true",): 1}
    assert len(answers["star"]) > 10
    assert set(COMPARED) < set(SHOP_QUERIES)
    other = tmp_path / "other.nq"
    Shop(100_000, 1).write(other)
    assert other.read_text() == file.read_text()


def test_our_client_on_our_servers_answers_everything_rightly(tmp_path: Path) -> None:
    sizes = {
        "triples": 1500, "latencies": [0], "clients": [OURS], "servers": [OURS_PLAIN, RESTRICTED],
        "queries": list(SHOP_QUERIES),
    }  # fmt: skip
    results = run(tmp_path, Clients(), repetitions=1, tables={"client": sizes})
    assert results.complete
    assert len(results.rows) == 2 * len(SHOP_QUERIES)
    assert set(results.numbers("right")) == {1.0}
    plain, restricted = (
        sum(results.numbers("requests", server=server)) for server in (OURS_PLAIN, RESTRICTED)
    )
    assert restricted < plain
    text = write_report(tmp_path, [Clients()]).read_text()
    assert "0 of " in text
    assert "our client on ours, plain TPF: 44 queries" in text


@pytest.mark.peers
def test_comunica_and_the_reference_server(tmp_path: Path) -> None:
    try:
        peers.package("@comunica/query-sparql")
        peers.new_node()
        peers.package("@ldf/server")
    except UnavailableError as error:
        pytest.skip(str(error))
    sizes = {
        "triples": 3000, "latencies": [1], "servers": [OURS_PLAIN, RESTRICTED, REFERENCE],
        "queries": ["chain", "optional", "construct"],
    }  # fmt: skip
    results = run(tmp_path, Clients(), repetitions=1, tables={"client": sizes})
    assert results.complete
    assert len(results.rows) == 21
    assert set(results.numbers("right")) == {1.0}
    assert all(count > 0 for count in results.numbers("requests", client=COMUNICA))
    told, untold = (
        sum(results.numbers("requests", client=client, server=RESTRICTED))
        for client in (COMUNICA_BRTPF, COMUNICA)
    )
    assert told < untold
    text = write_report(tmp_path, [Clients()]).read_text()
    assert "Comunica on " in text


def test_a_wrong_answer_is_told() -> None:
    columns = (*Clients.keys, *Clients.values)
    row = {
        **dict.fromkeys(columns, "1"), "client": OURS, "server": OURS_PLAIN, "query": "chain",
        "right": "0",
    }  # fmt: skip
    items: list[Any] = list(Clients().report(Results([row], {}, {})))
    text = "\n".join(str(item) for item in items)
    assert "1 of 1 answers differ" in text
    assert "our client on ours, plain TPF, chain" in text
