"""The endpoint beside a fragment server."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tpf_client.test_endpoint import call
from tpf_client import beside_server
from tpf_client.beside_server import BesideServer, Orders

ORDERS = Orders(
    socket="",
    base="https://data.example/",
    near="http://127.0.0.1:9/",
    datasets=["d"],
    continuous=True,
    seconds=10,
    rows=10,
    memory=1024,
    streams=1,
    streams_per_reader=0,
    examples=[],
    map_tiles="",
    map_attribution="",
)


@pytest.fixture
def app() -> Iterator[BesideServer]:
    app = BesideServer(ORDERS)
    yield app
    app.close()
    app.release()


def test_it_describes_itself_by_the_url_that_its_reader_knows(app: BesideServer) -> None:
    code, _, body = call(app, HTTP_X_TPF_AT="https://data.example/d/query")
    assert code == 200
    assert "<https://data.example/d/query/sparql>" in body.decode()
    assert call(app, query="query=ASK%7B%7D")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"), [("[:::]", 200), ("[x", 421), ("<a>@x", 421), ("x:<a>", 421), ("", 421)]
)
def test_a_name_that_is_none_is_no_failure(app: BesideServer, host: str, status: int) -> None:
    """A proxy may pass on whatever a reader calls it."""
    for query in ("", "query=ASK%7B%7D"):
        assert call(app, query=query, HTTP_X_TPF_AT=f"http://{host}/d/query")[0] == status


def test_input_that_breaks_off_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise OSError("Input/output error")

    done: list[object] = []
    monkeypatch.setattr(os, "read", broken)
    monkeypatch.setattr(os, "kill", lambda _process, number: done.append(number))
    monkeypatch.setattr(os, "_exit", done.append)
    monkeypatch.setattr(beside_server, "_END_SECONDS", 0.0)
    beside_server._end_with_input()
    assert done == [signal.SIGTERM, 1]
