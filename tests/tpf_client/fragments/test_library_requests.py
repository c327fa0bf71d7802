"""What asks for a client: as `requests` does, and finds out once how."""

import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from tpf_client.fragments.exchange import Asker, BadUrlError, Exchange
from tpf_client.fragments.library_requests import PooledRequests, asker_for

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


def _exchange() -> Exchange:
    return Exchange(60.0, TIMEOUT[1], 2**20, TIMEOUT[0])


def _asked(asker: Asker, url: str) -> str:
    with asker.ask(url, {"Accept": "text/plain"}, _exchange()) as answer:
        assert answer.status == 200
        return b"".join(answer.pieces()).decode()


@pytest.mark.parametrize("place", ["127.0.0.1", "user:secret@127.0.0.1"])
@pytest.mark.parametrize("path", ["", "/", "/a b?x=<y>&z=%C3%A9#there", "/ä?q=ö"])
def test_requests_are_those_of_the_library(port: int, place: str, path: str) -> None:
    url = f"http://{place}:{port}{path}"
    with requests.Session() as usual, closing(PooledRequests(2)) as asker:
        expected = usual.get(url, headers={"Accept": "text/plain"}, timeout=TIMEOUT).text
        assert _asked(asker, url) == expected
        assert _asked(asker, url) == expected
        assert _asked(asker_for(usual, 2), url) == expected


def test_a_proxy_of_the_environment_is_asked(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    monkeypatch.delenv("no_proxy", raising=False)
    with closing(PooledRequests(2)) as asker:
        assert _asked(asker, "http://far.example/a?b").startswith("http://far.example/a?b\n")


def test_connections_that_were_closed_are_opened_again(port: int) -> None:
    url = f"http://127.0.0.1:{port}/a"
    with closing(PooledRequests(2)) as asker:
        before = _asked(asker, url)
        for adapter in asker._session.adapters.values():
            adapter.close()
        assert _asked(asker, url) == before


def test_what_is_no_url_is_refused_as_by_the_library() -> None:
    with closing(PooledRequests(2)) as asker, pytest.raises(BadUrlError, match="not an absolute"):
        asker.ask("nothing", {}, _exchange())
