"""The setting ``continuous``."""

from pathlib import Path

import pytest

from tests.support.served import BASE, TOKEN, Served
from tpf_server.errors import SettingsError
from tpf_server.settings import Settings


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
