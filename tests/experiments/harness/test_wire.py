"""Received bytes are counted, however sockets are read."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from experiments.studies.processes import WireBytes


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
