"""``client``: a small run with real servers and clients."""

from pathlib import Path
from typing import Any

import pytest

from experiments.harness.report import write_report
from experiments.harness.results import Results
from experiments.harness.servers import OURS
from experiments.studies.client import (
    COMPARED,
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
