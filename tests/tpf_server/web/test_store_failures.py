"""A failing store: 503, the reason only in the log."""

import logging
import sqlite3

import psycopg
import pytest
import requests

from tests.support.served import TOKEN, Served
from tpf_server.errors import CorruptStoreError, StoreError

SECRET = "db.internal.example"
FAILURES = [
    StoreError(f"the live store postgresql://u@{SECRET}/facts failed"),
    CorruptStoreError(f"/srv/{SECRET}/store: cut short"),
    sqlite3.OperationalError(f"disk I/O error {SECRET}"),
    OSError(5, "Input/output error", f"/srv/{SECRET}"),
    psycopg.OperationalError(f'connection to server at "{SECRET}" failed'),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
@pytest.mark.parametrize("accept", ["application/trig", "text/html", "application/json", "*/*"])
def test_a_store_that_fails(
    shared: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    accept: str,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise failure

    for name in ("current", "snapshot", "publish"):
        monkeypatch.setattr(type(shared.live), name, fails)
    with caplog.at_level(logging.ERROR, "tpf_server"):
        answers: list[requests.Response] = [
            shared.get("trains", accept),
            shared.request(
                "POST",
                "trains/facts?expiration=2999-01-01T00:00:00Z",
                data="<http://e/s> <http://e/p> 5 .",
                headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/turtle"},
            ),
            shared.get("readyz"),
        ]
    for answer in answers:
        assert answer.status_code == 503, answer.text
        assert SECRET not in answer.text + str(answer.headers)
        assert "/srv" not in answer.text
    assert answers[0].headers["Retry-After"] == "5"
    assert caplog.text.count(SECRET) >= 3
