"""Compression, proxies, the API documentation."""

import gzip
import json
import re
from contextlib import closing
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path

import brotli
import pytest
from backports import zstd
from pyld import jsonld
from werkzeug.test import EnvironBuilder

from tests.support.served import BASE, HYDRA, Served, parse
from tests.tpf_server.conftest import STATIC


def fetch(served: Served, accept: str | None = None) -> tuple[Message, bytes]:
    """Header fields and body of the first page, as they come."""
    with closing(HTTPConnection("127.0.0.1", served.port, timeout=30)) as connection:
        headers = {} if accept is None else {"Accept-Encoding": accept}
        # By itself it would say "identity".
        connection.putrequest("GET", "/trains", skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        assert response.status == 200
        return response.headers, response.read()


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [
        ("gzip", "gzip"), ("br", "br"), ("gzip, br", "br"), ("gzip;q=1, br;q=0.5", "gzip"),
        ("identity", None), ("gzip;q=0", None), ("*", "br"), ("", None), ("zstd", "zstd"),
        ("zstd, br", "br"), ("dcz", None), ("gzip, dcz", "gzip"), ("compress", None),
    ],
)  # fmt: skip
def test_encodings_as_accepted(shared: Served, accept: str, encoding: str | None) -> None:
    plain, data = fetch(shared)
    packed, packed_data = fetch(shared, accept)
    assert packed.get("Content-Encoding") == encoding
    assert packed["Vary"] == "Accept, Accept-Encoding, Accept-Datetime, Available-Dictionary"
    assert int(packed["Content-Length"]) == len(packed_data)
    if encoding is None:
        assert packed_data == data
    else:
        unpack = {"gzip": gzip, "br": brotli, "zstd": zstd}[encoding].decompress
        assert unpack(packed_data) == data
        assert packed["ETag"] != plain["ETag"]


def test_compression_can_be_off(tmp_path: Path) -> None:
    with Served(tmp_path, STATIC, settings={"compress": False}) as served:
        headers, _ = fetch(served, "gzip")
        assert "Content-Encoding" not in headers


def test_the_url_that_clients_see_is_a_setting(tmp_path: Path) -> None:
    base = "https://data.test/ld/"
    with Served(tmp_path, STATIC, settings={"base_url": base[:-1]}) as served:
        text = served.get("trains?page=1", "application/n-quads").text
        assert f"<{base}trains?page=1#metadata>" in text
        assert f'"{base}trains{{?subject,' in text
        assert f"<{base}.well-known/genid/trains/" in text
        assert "127.0.0.1" not in text
        for path in ("trains", "", "nothing"):
            response = served.get(path, "text/html")
            assert f"<{base}api-doc>" in response.headers["Link"]
            assert f'href="{base}' in response.text


def test_a_trusted_proxy_says_how_clients_know_us(tmp_path: Path) -> None:
    with Served(tmp_path, STATIC, settings={"trust_forwarded": True}) as served:
        forwarded = {"X_Forwarded_Host": "data.test", "X_Forwarded_Proto": "https"}
        text = served.get("trains", "application/n-quads", **forwarded).text
        assert "<https://data.test/trains#metadata>" in text
        assert BASE not in text
        for path in ("trains", "", "nothing"):
            response = served.get(path, "text/html", **forwarded)
            assert 'href="https://data.test/"' in response.text
            assert "https://data.test/api-doc" in response.headers["Link"]
        for bad in ("evil.test/x", "a b", '"', "x\\y"):
            text = served.get("trains", "application/n-quads", X_Forwarded_Host=bad).text
            assert f"<{BASE}trains#metadata>" in text


def test_the_api_documentation_is_valid_hydra_without_remote_contexts(shared: Served) -> None:
    response = shared.get("api-doc")
    assert response.headers["Content-Type"] == "application/ld+json"
    document = json.loads(response.text)
    assert '"@context"' not in response.text.replace('"@context"', "", 1)

    def no_remote(url: str, options: object) -> dict[str, object]:
        pytest.fail(f"a remote context: {url}")

    expanded = jsonld.expand(document, {"documentLoader": no_remote})
    assert expanded[0]["@id"] == BASE + "api-doc"
    rows = parse(response.content, "application/ld+json")
    types = {row.object.strip("<>") for row in rows if row.predicate.endswith("#type>")}
    assert {HYDRA + name for name in ("ApiDocumentation", "Class", "Error", "Status")} <= types
    assert HYDRA + "SupportedProperty" in types
    predicates = {row.predicate.strip("<>") for row in rows}
    assert HYDRA + "supportedOperation" in predicates
    assert {row.object for row in rows if row.predicate == f"<{HYDRA}entrypoint>"} == {f"<{BASE}>"}
    for row in rows:
        if row.predicate in (f"<{HYDRA}{name}>" for name in ("returns", "property", "expects")):
            assert row.object[0] == "<"


def test_search_engines_get_fronts_and_no_fragments(shared: Served) -> None:
    robots = shared.get("robots.txt")
    assert robots.headers["Content-Type"] == "text/plain; charset=utf-8"
    rules = [line.partition(": ") for line in robots.text.splitlines()]
    refused = [rest.replace("*", ".*") for name, _, rest in rules if name == "Disallow"]
    for path, indexed in (
        ("", True), ("trains", True), ("trains?page=2", False), ("trains/plain?page=1", False),
        ("trains?subject=http://example.org/t2", False), ("stations", True),
    ):  # fmt: skip
        page = shared.get(path, "text/html")
        assert (page.headers.get("X-Robots-Tag") != "noindex") is indexed, path
        assert any(re.match(re.escape(each).replace(r"\.\*", ".*"), f"/{path}")
                   for each in refused) is not indexed, path  # fmt: skip
        # Programs do not index, and their heads are short.
        assert "X-Robots-Tag" not in shared.get(path, "application/n-quads").headers


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_page_is_handed_over_in_one_piece(shared: Served, method: str) -> None:
    """Servers send a list at once, other iterables bit by bit."""
    environ = EnvironBuilder(path="/trains", method=method).get_environ()
    body = shared.app.wsgi_app(environ, lambda *_: lambda _: None)
    assert isinstance(body, list)
    assert len(body) == 1
