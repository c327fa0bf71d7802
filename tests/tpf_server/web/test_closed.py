"""Closed resources, and impossible header fields."""

from pathlib import Path

import pytest

from tests.support.served import TOKEN, Served, quad
from tpf_server.errors import SettingsError
from tpf_server.settings import DatasetSettings, Settings

ABSURD = [
    "Tue, 08 Dec 2015 12:00:00 +9999",
    "Tue, 08 Dec 2015 12:00:00 -9999",
    "Tue, 08 Dec 2015 12:00:00 +99999999",
    "Fri, 31 Dec 9999 23:59:59 -0100",
    "x",
]


def test_a_date_that_there_is_not_is_refused_or_ignored(tmp_path: Path) -> None:
    with Served(tmp_path, [quad("a", "p", "o")]) as served:
        for field in ABSURD:
            assert served.get("trains", Accept_Datetime=field).status_code == 400
    with Served(tmp_path / "static", [quad("a", "p", "o")], live=False) as served:
        for field in ABSURD:
            assert served.get("trains", If_Modified_Since=field).status_code == 200


def test_no_answer_is_taken_for_another_type(tmp_path: Path) -> None:
    with Served(tmp_path, settings={"continuous": True}) as served:
        for path in ("trains", "trains.html", "", "nothing", "metrics", "api-doc", "queries"):
            assert served.get(path).headers["X-Content-Type-Options"] == "nosniff", path
        answer = served.post("x", path="trains/facts")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_metrics_and_queries_can_be_closed(tmp_path: Path) -> None:
    closed = {"continuous": True, "open_metrics": False, "open_queries": False}
    with Served(tmp_path, settings=closed) as served:
        for path in ("metrics", "queries", "streams", "queries/x", "queries/x/results"):
            answer = served.get(path)
            assert answer.status_code == 401, path
            assert served.get(path, Authorization="Bearer x").status_code == 401
            given = served.get(path, Authorization=f"Bearer {TOKEN}")
            assert given.status_code in (200, 404), path
        assert served.get("trains").status_code == 200


def test_readers_of_results_have_slots_by_address(tmp_path: Path) -> None:
    settings = {"continuous": True, "followers": 4, "followers_per_address": 2,
                "trust_forwarded": True}  # fmt: skip
    with Served(tmp_path, settings=settings) as served:
        text = "SELECT ?s WHERE { STREAM <urn:s> [RANGE 5s] { ?s <urn:p> ?o } }"
        place = served.post(text, "name=q", "application/sparql-query", path="queries")
        assert place.status_code == 201, place.text

        slots = served.app.extensions["tpf_server.continuous"].slots
        taken = [slots.take(f"{n}.1.1.1") for n in (1, 1, 1, 2, 2, 3)]
        assert taken == [True, True, False, True, True, False]
        slots.leave("2.1.1.1")
        # The proxy's word counts, not the client's own.
        answer = served.get("queries/q/results", X_Forwarded_For="3.1.1.1, 1.1.1.1")
        assert answer.status_code == 503
        assert "or 2 of this address" in answer.json()["detail"]
        assert slots.take("3.1.1.1")


@pytest.mark.parametrize("token", [" x", "x ", "a\nb", "é", "\x7f", "\t"])
def test_a_token_that_could_never_match_is_refused(token: str) -> None:
    with pytest.raises(SettingsError, match="could never match"):
        Settings(publish_token=token)
    with pytest.raises(SettingsError, match="dataset a: token could never match"):
        DatasetSettings(name="a", token=token)


def test_a_token_with_a_blank_inside_matches(tmp_path: Path) -> None:
    with Served(tmp_path, settings={"publish_token": "a b"}) as served:
        line = "<a:b> <a:c> <a:d> ."
        assert served.post(line, "expiration=2999-01-01T00:00:00Z", token="a b").status_code == 201
