"""Child processes of boards: bytes on the wire, and clients and feeds that meet faults."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import responses

from annotations.clock import ManualClock
from annotations.instants import parse_instant
from experiments.free_port import free_port
from experiments.studies.processes import BoardFeed, Seen, Streamers, WireBytes
from loaders.errors import PublishRefusedError

BEGIN = datetime(2026, 11, 23, 12, tzinfo=UTC)
URL = "http://127.0.0.1:1/trains"


@contextmanager
def connected(
    patch: pytest.MonkeyPatch,
) -> Iterator[tuple[WireBytes, socket.socket, socket.socket]]:
    """The counts, a client that is counted, and its server."""
    patch.setattr(socket, "socket", socket.socket)  # put back afterwards
    wire = WireBytes()
    wire.install()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with closing(client), closing(accepted):
            yield wire, client, accepted


@pytest.mark.parametrize("how", ["recv", "recv_into", "makefile"])
def test_what_comes_is_counted(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    with connected(monkeypatch) as (wire, client, accepted):
        accepted.sendall(b"1234567")
        accepted.shutdown(socket.SHUT_WR)
        if how == "recv":
            assert client.recv(100) == b"1234567"
        elif how == "recv_into":
            assert client.recv_into(bytearray(100)) == 7
        else:
            with client.makefile("rb") as file:
                assert file.read() == b"1234567"
        assert wire.counts["bytes"] == 7


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_heads_are_told_from_bodies(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    heads = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ]
    sent = heads[0] + b"a\r\n\r\nbody" + heads[1] + heads[2] + b"3\r\n\r\n\r\n"
    with connected(monkeypatch) as (wire, client, accepted):
        client.sendall(b"GET")
        accepted.send(sent)
        accepted.shutdown(socket.SHUT_WR)
        while client.recv(piece):
            pass
    assert wire.counts == {
        "bytes": len(sent), "head_bytes": sum(map(len, heads)), "sent_bytes": 3,
    }  # fmt: skip


def test_a_query_whose_first_evaluation_fails_is_told_of() -> None:
    """Otherwise it would be waited for."""
    seen = Seen(1)
    order = {
        "url": f"http://127.0.0.1:{free_port()}/nobody", "shared": False, "jitter": 0.0,
        "queries": ["SELECT * { ?s ?p ?o }"],
    }  # fmt: skip
    clients = Streamers(order, seen)
    try:
        assert seen.ready.wait(60)
    finally:
        clients.close()
    told = seen.to_json()
    assert told["failed"] == 1
    assert "/nobody" in told["errors"][0]


def feed(seconds: float) -> BoardFeed:
    return BoardFeed(
        {
            "mode": "facts", "url": URL, "token": "t", "departures": ["<http://example.org/d>"],
            "period": 10.0, "window": 10.0, "lead": 0.25, "seconds": seconds,
        }
    )  # fmt: skip


@pytest.mark.parametrize("takes", [1, 25])
def test_a_server_that_is_too_late_loses_renewals_and_the_feed_goes_on(takes: float) -> None:
    clock = ManualClock(BEGIN)
    ends = []

    def take(request: Any) -> tuple[int, dict[str, str], str]:
        end = parse_instant(request.params["expiration"])
        clock.advance_to(clock.now() + timedelta(seconds=takes))
        if clock.now() >= end:
            return 422, {}, "it ended"
        ends.append(end)
        return 201, {}, ""

    board = feed(60)
    with responses.RequestsMock() as server:
        server.add_callback("POST", f"{URL}/facts", take)
        board.publish(clock)
    # All count as sent, whether they will arrive or not, and keep their numbers.
    assert len(board.sent) == 7
    assert board.sent == sorted(board.sent)
    if takes == 1:
        assert ends == [BEGIN + timedelta(seconds=10 * number) for number in range(1, 8)]
    else:
        assert ends == []


def test_a_batch_that_is_refused_in_time_ends_the_feed() -> None:
    with responses.RequestsMock() as server:
        server.post(f"{URL}/facts", status=422, body="no such predicate")
        with pytest.raises(PublishRefusedError, match="422 no such predicate"):
            feed(60).publish(ManualClock(BEGIN))
