"""Live pages are made once while they are valid."""

import gzip
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact
from tests.support.examples import examples
from tests.support.served import TMP, Served, quad
from tests.tpf_server.conftest import STATIC
from tpf_server.fragments import fragment
from tpf_server.web import read
from tpf_server.web.page_bodies import _SMALLEST, encoded


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs of pages that were made."""
    result: list[str] = []
    evaluate = fragment.evaluate
    monkeypatch.setattr(
        read, "evaluate", lambda query: result.append(query.request.page_url) or evaluate(query)
    )
    return result


def test_a_page_is_made_once_for_all_who_ask_while_it_is_right(
    tmp_path: Path, made: list[str]
) -> None:
    with Served(tmp_path) as served:
        live = served.live
        assert live is not None

        def publish(value: str, seconds: int) -> None:
            end = served.clock.now() + timedelta(seconds=seconds)
            fact = Fact(quad("t1", "delay", value), Expiration(end))
            live.publish([fact], served.clock.now())

        def wait(milliseconds: int) -> None:
            served.clock.advance_to(served.clock.now() + timedelta(milliseconds=milliseconds))

        publish('"1"', 30)
        first = served.get("trains.nq")
        wait(20_000)
        again = served.get("trains.nq", Cache_Control="no-cache")
        assert (again.content, again.headers["ETag"]) == (first.content, first.headers["ETag"])
        assert len(made) == 1
        # The age of the page does not change how long it is right, and is told.
        assert again.headers["Cache-Control"].startswith("private, max-age=10,")
        assert again.headers["Server-Timing"] == "made;dur=20000"
        # Only who asks past all caches is told: a cache must not repeat it.
        assert served.get("trains.nq").headers["Expires"] == "Tue, 08 Dec 2015 12:00:30 GMT"
        for asked in ({}, {"Cache_Control": "max-age=0"}, {"If_None_Match": "*"}):
            reply = served.get("trains.nq", **asked)
            assert "Server-Timing" not in reply.headers
            assert reply.headers["Vary"] == again.headers["Vary"]
        wait(1)
        asks = {"Cache_Control": "no-cache", "If_None_Match": first.headers["ETag"]}
        unchanged = served.get("trains.nq", **asks)
        assert unchanged.headers["Server-Timing"] == "made;dur=20001"
        assert unchanged.headers["Cache-Control"].startswith("private, ")
        # Readers of HTML go by the time that it says it was made at.
        shown = served.get("trains.html").content
        wait(200)
        assert served.get("trains.html").content == shown
        wait(100)
        assert served.get("trains.html").content != shown
        assert len(made) == 3
        made.clear()
        # Another format, the end of a label, another content.
        assert served.get("trains.ttl").content != first.content
        wait(10_000)
        later = served.page("trains.nq")
        assert later.objects(TMP + "evaluatedAt") == ["2015-12-08T12:00:30.301000Z"]
        publish('"2"', 3600)
        assert b'"2"' in served.get("trains.nq").content
        assert len(made) == 3
        # The links of a page lead on for half of the time that snapshots are kept.
        wait(149_000)
        served.get("trains.nq")
        wait(2_000)
        assert served.page("trains.nq").objects(TMP + "evaluatedAt") == [
            "2015-12-08T12:03:01.301000Z"
        ]
        made.clear()
        # Pages of one instant, for whoever follows links, are made anew.
        pinned = f"trains.nq?snapshot={live.snapshot(served.clock.now()).instant}.1"
        assert "Server-Timing" not in served.get(pinned, Cache_Control="no-cache").headers
        served.get(pinned)
        assert len(made) == 2


def test_a_page_of_a_static_dataset_is_kept_from_the_second_time_on(
    tmp_path: Path, made: list[str]
) -> None:
    with Served(tmp_path, STATIC, live=False) as served:
        for accept in ("application/trig", "text/html"):
            first = served.get("trains", accept)
            for _ in range(3):
                served.clock.advance_to(served.clock.now() + timedelta(days=1))
                again = served.get("trains", accept)
                assert again.content == first.content
                assert again.headers["ETag"] == first.headers["ETag"]
        assert len(made) == 4
        served.get("trains", Accept_Encoding="gzip")
        served.get("trains?page=2")
        assert len(made) == 6
        # Pages that nobody asks for again take no room from the others.
        for number in range(3, 300):
            served.get(f"trains?page={number}")
        made.clear()
        served.get("trains", "application/trig")
        assert not made


@examples(15)
@given(size=st.integers(_SMALLEST, 70_000), random=st.randoms(use_true_random=False))
def test_a_body_of_any_size_is_read_by_who_knows_gzip(size: int, random: Random) -> None:
    words = [b"%d" % random.randrange(10**6) for _ in range(200)]
    body = b" ".join(random.choice(words) for _ in range(size // 3))[:size]
    if len(body) >= _SMALLEST:
        packed = encoded(body, "gzip")
        assert packed is not None
        assert gzip.decompress(packed) == body
        assert len(packed) <= 1.02 * len(gzip.compress(body, 5))
