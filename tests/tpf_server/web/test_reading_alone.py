"""Reading works without writing, and when the clock is set back."""

from datetime import timedelta
from pathlib import Path

import pytest

from annotations.clock import ManualClock
from annotations.labels import Expiration, Interval
from tests.faults.shots import Shot, fire
from tests.support.served import NOON, Served, quad
from tpf_server.app import create_app
from tpf_server.store.live.log import LiveSettings

KEEPING = LiveSettings(retention=timedelta(seconds=5), history=timedelta(seconds=5))


def publish(served: Served, number: int) -> None:
    now = served.clock.now()
    served.publish(
        (quad(f"a{number}", "p", "o"), Expiration(now + timedelta(minutes=1))),
        (quad(f"b{number}", "p", "o"), Interval(now, now + timedelta(minutes=1))),
    )


def test_pages_are_read_while_the_log_cannot_be_written(tmp_path: Path) -> None:
    with Served(tmp_path, keeping=KEEPING) as served:
        publish(served, 0)
        assert served.live is not None
        written = served.live._log._write  # type: ignore[attr-defined]
        written.execute("PRAGMA query_only = ON")
        for minutes in range(20):
            served.clock.advance_to(NOON + timedelta(seconds=10 * minutes))
            for path in ("trains", "trains/named-graph.trig", "trains.html"):
                assert served.get(path).status_code == 200
        not_ready = served.get("readyz")
        assert not_ready.status_code == 503
        assert "dataset trains" in not_ready.json()["detail"]
        assert (
            served.post("<a:b> <a:c> <a:d> .", "expiration=2999-01-01T00:00:00Z").status_code >= 500
        )
        written.execute("PRAGMA query_only = OFF")
        assert served.get("readyz").status_code == 200
        assert served.post("<a:b> <a:c> <a:d> .", "expiration=2999-01-01T00:00:00Z").ok


@pytest.mark.parametrize("history", [None, timedelta(seconds=5)])
def test_pages_are_read_where_the_clock_was_set_back(
    tmp_path: Path, history: timedelta | None
) -> None:
    keeping = LiveSettings(retention=timedelta(seconds=5), history=history)
    with Served(tmp_path, keeping=keeping, settings={"page_size": 1}) as served:
        assert served.live is not None
        for number in range(100):
            served.clock.advance_to(NOON + timedelta(minutes=number))
            publish(served, number)
            served.live.retire(served.clock.now() + timedelta(seconds=30))
        back = ManualClock(served.clock.now() - timedelta(hours=1))
        app = create_app(served.settings, [served.dataset], back)
        served.live.publish([], back.now())
        for _ in range(2):
            path, pages = "/trains.nq", 0
            while path:
                name, _, query = path.partition("?")
                answer = fire(app, Shot("GET", name.encode(), query.encode()))
                assert answer.status == 200, answer.body
                following = answer.body.partition(b"core#next> <http://server.test")[2]
                path, pages = following.partition(b">")[0].decode(), pages + 1
            assert pages == 2
        for page in (b"/", b"/query/words.json"):
            answer = fire(app, Shot("GET", page))
            assert answer.status == 200, answer.body
