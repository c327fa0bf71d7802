"""Received bytes are counted, however sockets are read."""

import socket
from contextlib import closing

import pytest

from experiments.studies.processes import WireBytes


@pytest.mark.parametrize("how", ["recv", "recv_into", "makefile"])
def test_what_comes_is_counted(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(socket, "socket", socket.socket)  # put back afterwards
    wire = WireBytes()
    wire.install()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with closing(client), closing(accepted):
            accepted.sendall(b"1234567")
            accepted.shutdown(socket.SHUT_WR)
            if how == "recv":
                assert client.recv(100) == b"1234567"
            elif how == "recv_into":
                assert client.recv_into(bytearray(100)) == 7
            else:
                with client.makefile("rb") as file:
                    assert file.read() == b"1234567"
            assert wire.received == 7
