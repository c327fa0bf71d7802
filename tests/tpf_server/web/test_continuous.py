"""The setting ``continuous``."""

from pathlib import Path

import pytest

from tests.support.served import BASE, TOKEN, Served, quad
from tpf_server.errors import SettingsError
from tpf_server.settings import Settings

QUERY = """SELECT ?train ?name ?delay {
  STREAM <http://server.test/streams/delays> [NOW] { ?train <http://example.org/delay> ?delay }
  ?train <http://example.org/name> ?name
  GRAPH <http://server.test/trains> { ?train <http://example.org/stop> <http://example.org/ghent> }
}"""


def test_queries_join_streams_with_the_datasets(tmp_path: Path) -> None:
    static = [
        quad("t1", "name", '"IC 1"'),
        quad("t1", "stop", "ghent"),
        quad("t2", "name", '"L 2"'),
    ]
    with Served(tmp_path, static, settings={"continuous": True}) as served:
        auth = {"Authorization": f"Bearer {TOKEN}"}
        made = served.request("POST", "queries", json={"query": QUERY}, headers=auth)
        assert made.status_code == 201, made.text
        place = made.headers["Location"].removeprefix(BASE).lstrip("/")
        for train in ("t1", "t2"):
            pushed = served.request(
                "POST",
                "streams/delays?timestamp=2015-12-08T12:00:00Z",
                data=f'<http://example.org/{train}> <http://example.org/delay> "5" .',
                headers=auth | {"Content-Type": "application/n-quads"},
            )
            assert pushed.status_code < 300, pushed.text
        results = served.get(f"{place}/results?follow=false", "application/x-ndjson").text
        assert "IC 1" in results
        assert "L 2" not in results
        assert served.get("trains").status_code == 200


def test_people_get_pages_of_streams_and_queries(tmp_path: Path) -> None:
    text = """SELECT * { STREAM <http://server.test/streams/s> [NOW] { ?s ?p "</pre><script>" } }"""
    with Served(tmp_path, [], settings={"continuous": True}) as served:
        auth = {"Authorization": f"Bearer {TOKEN}"}
        served.request("PUT", "streams/s", headers=auth)
        empty = served.get("queries", "text/html").text
        assert "There are no continuous queries yet" in empty
        served.request("POST", "queries", json={"query": text, "name": "q"}, headers=auth)
        for path, shown in (
            ("", f'href="{BASE}streams"'),
            ("streams", f'href="{BASE}streams/http%3A%2F%2Fserver.test%2Fstreams%2Fs"'),
            ("streams/s", "triples"),
            ("queries", f'href="{BASE}queries/q"'),
            ("queries/q", "&lt;/pre&gt;&lt;script&gt;"),
            ("queries/q", f'href="{BASE}queries/q/results?follow=false"'),
        ):
            page = served.get(path, "text/html,*/*;q=0.8")
            assert page.headers["Content-Type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
            assert shown in page.text, path
            assert "<script>alert" not in page.text
            if path:
                for accept in (None, "*/*", "application/json", "text/turtle"):
                    assert served.get(path, accept).headers["Content-Type"] == "application/json"
        for accept, kind in (("text/html", "text/html"), ("*/*", "application/problem+json")):
            missing = served.get("queries/none", accept)
            assert missing.status_code == 404
            assert missing.headers["Content-Type"].startswith(kind)


def test_it_is_off_by_default(served: Served) -> None:
    assert served.get("queries").status_code == 404


def test_it_needs_one_worker() -> None:
    with pytest.raises(SettingsError, match="workers"):
        Settings(continuous=True, workers=2)
