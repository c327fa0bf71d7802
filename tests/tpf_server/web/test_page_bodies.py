"""Live pages that many ask for at once are made once."""

from datetime import timedelta
from pathlib import Path

import pytest

from annotations.labels import Expiration, Fact
from tests.support.served import NOON, TMP, Served, quad
from tpf_server.fragments import fragment
from tpf_server.web import read


def test_a_page_is_made_once_for_all_who_ask_within_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    evaluate = fragment.evaluate
    monkeypatch.setattr(
        read, "evaluate", lambda query: made.append(query.request.page_url) or evaluate(query)
    )
    with Served(tmp_path) as served:
        live = served.live
        assert live is not None

        def publish(value: str) -> None:
            fact = Fact(quad("t1", "delay", value), Expiration(NOON + timedelta(seconds=30)))
            live.publish([fact], served.clock.now())

        def wait(milliseconds: int) -> None:
            served.clock.advance_to(served.clock.now() + timedelta(milliseconds=milliseconds))

        publish('"1"')
        first = served.get("trains.nq")
        wait(200)
        again = served.get("trains.nq")
        assert (again.content, again.headers["ETag"]) == (first.content, first.headers["ETag"])
        assert len(made) == 1
        # The age of the page does not change how long it is right.
        assert again.headers["Expires"] == first.headers["Expires"]
        # Another format, another moment, another content.
        assert served.get("trains.ttl").content != first.content
        wait(100)
        later = served.page("trains.nq")
        assert later.objects(TMP + "evaluatedAt") == ["2015-12-08T12:00:00.300000Z"]
        publish('"2"')
        assert b'"2"' in served.get("trains.nq").content
        assert len(made) == 4
        # Pages of one instant, for whoever follows links, are made anew.
        pinned = f"trains.nq?snapshot={live.snapshot(served.clock.now()).instant}.1"
        served.get(pinned)
        served.get(pinned)
        assert len(made) == 6
