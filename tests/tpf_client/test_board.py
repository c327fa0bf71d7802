"""The board: what is new, what changed, what is gone."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from annotations.labels import Expiration, Fact
from annotations.terms import Quad, Term, iri, literal
from tests.support.live_server import START, LiveServer
from tpf_client import Client
from tpf_client.board import Board, pairs

EX = "http://example.org/"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path)
    yield server
    server.close()


def _publish(server: LiveServer, values: dict[str, str], seconds: int) -> None:
    end = Expiration(server.clock.now() + timedelta(seconds=seconds))
    server.publish(
        [Fact(Quad(iri(EX + s), iri(EX + "d"), literal(v)), end) for s, v in values.items()]
    )


def test_new_changed_and_gone_rows_look_different(server: LiveServer) -> None:
    _publish(server, {"a": "1", "b": "2"}, 5)
    server.clock.schedule(
        START + timedelta(seconds=5), lambda: _publish(server, {"a": "9 [x]", "c": "3"}, 5)
    )
    console = Console(width=100, force_terminal=True, color_system="standard", record=True)
    with Client(server.url, session=server.session(), clock=server.clock, parallelism=0) as client:
        updates = iter(client.stream(f"SELECT ?s ?d {{ ?s <{EX}d> ?d }}"))
        board = Board(10)
        console.print(board.render(next(updates), client.statistics, None))
        assert "2 rows at 10:20:00 UTC" in console.export_text(clear=True)
        update = next(updates)
        console.print(board.render(update, client.statistics, update.valid_until))
        text = console.export_text(styles=True)
    assert "\x1b[1;33m9 [x]" in text
    assert f"\x1b[32m{EX}c" in text
    assert f"\x1b[2;9m{EX}b" in text
    assert "valid until 10:20:10" in text


def test_pairs_are_rows_that_agree_in_half_of_their_cells() -> None:
    a, b, c = Term("<a>"), Term("<b>"), Term("<c>")
    assert pairs([(a, b), (c, c)], [(a, c), (b, b)]) == {(a, b): (a, c)}
