"""Pages that Flask does not dispatch are those that it dispatches."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask

from annotations.labels import Interval
from tests.faults.shots import Gun, Shot, fire_raw
from tests.support.served import NOON, Served, quad
from tests.tpf_server.conftest import STATIC
from tpf_server.app import create_app
from tpf_server.web.responses import http_date

Both = tuple[Served, Flask]

FORMATS = (
    "*/*", "text/html", "application/trig", "application/n-quads", "text/turtle",
    "application/n-triples", "application/ld+json", "image/png", "a" * 5000,
)  # fmt: skip
QUERIES = (
    "", "page=2", "page=99", "page=0", "page=x", "limit=2", "subject=_:x", "subject=?a&object=?a",
    "subject=http://example.org/t1", "predicate=http://example.org/platform", "page=1&page=2",
    "object=%221%22", "graph=urn:ldf:defaultGraph", "snapshot=x", "snapshot=1.1", "at=x",
    "at=2015-12-08T12:30:00Z", "at=1990-01-01T00:00:00Z", "unknown=1", "subject=%ff",
    "values=(?subject)%20%7B%20(%3Chttp://example.org/t1%3E)%20%7D", "values=(", "values=()%20%7B",
)  # fmt: skip
PATHS = (
    "/trains", "/trains/plain", "/trains/named-graph", "/trains.nt", "/trains/plain.html",
    "/trains.x", "/trains/", "/nothing", "/trains/facts", "/", "/api-doc", "/healthz", "//trains",
)  # fmt: skip
FIELDS = (
    ("Accept-Encoding", "gzip"), ("Accept-Encoding", "br"), ("Accept-Encoding", "x"),
    ("Accept-Datetime", http_date(NOON)), ("Accept-Datetime", "x"), ("If-None-Match", "*"),
    ("If-None-Match", '"x"'), ("If-Modified-Since", "Fri, 31 Dec 2999 23:59:59 GMT"),
    ("X-Forwarded-Host", "data.test"), ("X-Forwarded-Proto", "https"), ("Range", "bytes=0-1"),
)  # fmt: skip


@pytest.fixture(params=[True, False], ids=["live", "static"])
def both(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    """A server that answers pages directly, and an application that dispatches them."""
    settings = {"page_size": 3, "trust_forwarded": True}
    with Served(tmp_path, STATIC, live=request.param, settings=settings) as served:
        if request.param:
            for hour in range(2):
                start = NOON + timedelta(hours=hour)
                served.clock.advance_to(start)
                label = Interval(start, start + timedelta(hours=1))
                rows = [quad(f"t{n}", "platform", f'"{hour}"') for n in range(4)]
                served.publish(*[(row, label) for row in rows])
        dispatched = replace(served.settings, direct_pages=False)
        yield served, create_app(dispatched, [served.dataset], served.clock)


def check(both: Both, shot: Shot) -> str:
    served, dispatched = both
    direct, other = fire_raw(served.app, shot), fire_raw(dispatched, shot)
    assert direct.status == other.status, shot
    assert direct.body == other.body, shot
    assert sorted(direct.headers) == sorted(other.headers), shot
    return direct.status[:3]


def shots() -> Iterator[Shot]:
    """One of every class of request."""
    for query in QUERIES:
        for method in ("GET", "HEAD", "OPTIONS", "DELETE", "BREW"):
            yield Shot(method, b"/trains", query.encode())
        for accept in FORMATS:
            yield Shot("GET", b"/trains", query.encode(), (("Accept", accept),))
        for field in FIELDS:
            for method in ("GET", "HEAD"):
                yield Shot(method, b"/trains", query.encode(), (field,))
    for path in PATHS:
        for method in ("GET", "HEAD", "OPTIONS", "POST"):
            yield Shot(method, path.encode())


def test_every_class_of_request_is_answered_the_same(both: Both) -> None:
    statuses = {check(both, shot) for shot in shots()}
    assert statuses >= {"200", "204", "304", "400", "404", "405", "406"}


def test_a_copy_that_is_right_is_304_either_way(both: Both) -> None:
    served, _ = both
    for fields in ((), (("Accept-Encoding", "gzip"),), (("Accept", "text/html"),)):
        tag = dict(fire_raw(served.app, Shot("GET", b"/trains", b"", fields)).headers)["ETag"]
        again = Shot("GET", b"/trains", b"", (*fields, ("If-None-Match", tag)))
        assert check(both, again) == "304"


def test_nonsense_is_answered_the_same(both: Both) -> None:
    gun = Gun(16)
    for make in 150 * (gun.term, gun.control, gun.frame):
        shot = make()
        if shot.path != b"/metrics":  # every application counts its own
            check(both, shot)


def test_both_count_requests_and_one_answers_before_flask(both: Both) -> None:
    seen: list[str | None] = []
    for app in (both[0].app, both[1]):
        for method in ("GET", "HEAD", "OPTIONS"):
            fire_raw(app, Shot(method, b"/trains"))
        text = fire_raw(app, Shot("GET", b"/metrics")).body.decode()
        for method in ("GET", "HEAD"):
            assert f'tpf_requests_total{{method="{method}",status="200"}} 1.0' in text
        assert 'tpf_pages_total{dataset="trains"} 3.0' in text
        app.before_request_funcs.setdefault(None, []).append(lambda: seen.append("hook"))
        assert fire_raw(app, Shot("GET", b"/trains")).status == "200 OK"
    assert seen == ["hook"]
