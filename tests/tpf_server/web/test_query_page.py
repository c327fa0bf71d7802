"""Links of pages to the query page."""

import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import rdflib
import requests

from annotations.labels import Expiration, Fact
from annotations.namespaces import RDF_TYPE
from annotations.terms import Quad, iri, literal
from tests.support.live_server import LiveServer
from tpf_client.sparql.parser import parse_query
from tpf_server.errors import SettingsError
from tpf_server.settings import Settings

EX = "http://example.org/"
PAGE = "http://query.test/"


def _links(server: LiveServer, query: str, url: str | None = None) -> list[str]:
    session: requests.Session = server.session()
    url = url or f"{server.url}{query}"
    text = session.get(url, headers={"Accept": "text/html"}, timeout=30).text
    return [part.split('"')[0] for part in text.split('href="')[1:] if part.startswith(PAGE)]


@pytest.mark.parametrize(
    "query",
    ["?subject=", f"?subject={EX}a", f"?predicate={EX}says&object=%22%3C%2Fa%3E%3Cb%3E%22",
     f"?graph={EX}g", f"?subject={EX}a&predicate={EX}says&object=%22x%22", "?subject=?x&object=?x"],
)  # fmt: skip
def test_a_page_links_to_a_query_for_what_it_shows(tmp_path: Path, query: str) -> None:
    data = [Quad(iri(EX + "a"), iri(EX + "says"), literal("</a><b>"))]
    server = LiveServer(tmp_path, data, live=False, server={"query_page": PAGE})
    query_this, link = _links(server, query)
    assert query_this == link + "&amp;watch=false"
    text = parse_qs(urlsplit(link).fragment)["query"][0]
    parsed = parse_query(text)
    assert parsed.form == "SELECT"
    assert parsed.variables
    if "graph" not in query:
        graph = rdflib.Graph()
        graph.add((rdflib.URIRef(EX + "a"), rdflib.URIRef(EX + "says"), rdflib.Literal("</a><b>")))
        assert len(list(graph.query(text))) == ("%22x%22" not in query and "?x" not in query)
    everything, of_predicate = _links(server, "")
    assert (everything == query_this) == (query == "?subject=")
    assert quote(f"<{EX}says>", safe="") in of_predicate
    assert _links(server, "", "http://server.test/") == [PAGE]
    server.close()


def test_without_the_setting_the_page_is_the_own_one(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, live=False)
    assert _links(server, "") == []
    session = server.session()
    text = session.get(server.url, headers={"Accept": "text/html"}, timeout=30).text
    (link,) = {part.split("#")[0] for part in text.split('href="') if "/query/#" in part}
    moved = session.get(link, allow_redirects=False, timeout=30)
    assert (moved.status_code, moved.headers["Location"]) == (
        303, "http://server.test/query/?dataset=" + server.url.rpartition("/")[2],
    )  # fmt: skip
    page = session.get(moved.headers["Location"], timeout=30)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    board = session.get(moved.headers["Location"] + "&embed", timeout=30)
    assert "frame-ancestors *;" in board.headers["Content-Security-Policy"]
    told = session.get("http://server.test/query/page.json", timeout=30)
    assert told.json()["datasets"] == [server.url]
    assert told.json()["endpoint"] is False
    for name in re.findall(r'"([\w-]+-[0-9a-f]{16}\.\w+)"', page.text):
        file = session.get(f"http://server.test/query/{name}", timeout=30)
        assert file.status_code == 200
        assert "immutable" in file.headers["Cache-Control"]
        assert file.headers["X-Content-Type-Options"] == "nosniff"
        # Only the worker compiles WebAssembly, and reads fragments of other servers.
        policy = file.headers["Content-Security-Policy"]
        assert ("wasm-unsafe-eval" in policy) == ("engine" in name)
    assert session.get("http://server.test/query/nothing.js", timeout=30).status_code == 404
    assert session.post("http://server.test/query/", timeout=30).status_code == 405
    server.close()
    with pytest.raises(SettingsError, match="query_page"):
        Settings(query_page="javascript:alert(1)")


def test_words_are_counted_by_the_stores(tmp_path: Path) -> None:
    kind = iri(EX + "Kind")
    data = [Quad(iri(f"{EX}{n}"), RDF_TYPE, kind) for n in range(7)]
    data += [Quad(iri(EX + "0"), iri(EX + "says"), literal("x"))]
    server = LiveServer(tmp_path, data)
    ends = Expiration(server.clock.now() + timedelta(minutes=1))
    late = [Quad(iri(f"{EX}{n}"), iri(EX + "late"), literal("1")) for n in range(3)]
    server.publish([Fact(quad, ends) for quad in [*late, Quad(iri(EX + "8"), RDF_TYPE, kind)]])
    session = server.session()
    name = server.url.rpartition("/")[2]
    words = f"http://server.test/query/words.json?dataset={name}"
    told = session.get(words, timeout=30).json()
    assert session.get(f"{words}&dataset={name}", timeout=30).json() == told  # each counts once
    counts = [[RDF_TYPE[1:-1], 8], [EX + "late", 3], [EX + "says", 1]]
    assert told["predicates"] == counts
    assert told["classes"] == [[EX + "Kind", 8]]
    assert session.get("http://server.test/query/words.json", timeout=30).json() == told
    server.clock.advance_to(ends.end)
    later = session.get("http://server.test/query/words.json", timeout=30).json()
    assert [EX + "late", 3] not in later["predicates"]
    assert session.get("http://server.test/query/words.json?dataset=no").status_code == 404
    server.close()
