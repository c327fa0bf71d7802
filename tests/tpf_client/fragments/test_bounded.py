"""The session of a client: asks as `requests` does, and finds out once how."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from tpf_client.fragments.bounded import PooledSession

TIMEOUT = (60.0, 60.0)


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with what was asked."""
        heads = sorted((name.lower(), value) for name, value in self.headers.items())
        body = "\n".join([self.path, *(f"{name}: {value}" for name, value in heads)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody wants to know."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def _asked(session: PooledSession, url: str) -> str:
    with session.ask(url, {"Accept": "text/plain"}, TIMEOUT) as answer:
        assert answer.status_code == 200
        return b"".join(answer.iter_content(100)).decode()


@pytest.mark.parametrize("place", ["127.0.0.1", "user:secret@127.0.0.1"])
@pytest.mark.parametrize("path", ["", "/", "/a b?x=<y>&z=%C3%A9#there", "/ä?q=ö"])
def test_requests_are_those_of_the_library(port: int, place: str, path: str) -> None:
    url = f"http://{place}:{port}{path}"
    with requests.Session() as usual, PooledSession(2) as session:
        expected = usual.get(url, headers={"Accept": "text/plain"}, timeout=TIMEOUT).text
        assert _asked(session, url) == expected
        assert _asked(session, url) == expected


def test_a_proxy_of_the_environment_is_asked(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    monkeypatch.delenv("no_proxy", raising=False)
    with PooledSession(2) as session:
        assert _asked(session, "http://far.example/a?b").startswith("http://far.example/a?b\n")


def test_connections_that_were_closed_are_opened_again(port: int) -> None:
    url = f"http://127.0.0.1:{port}/a"
    with PooledSession(2) as session:
        before = _asked(session, url)
        for adapter in session.adapters.values():
            adapter.close()
        assert _asked(session, url) == before


def test_what_is_no_url_is_refused_as_by_the_library() -> None:
    with PooledSession(2) as session, pytest.raises(requests.exceptions.MissingSchema):
        session.ask("nothing", {}, TIMEOUT)
