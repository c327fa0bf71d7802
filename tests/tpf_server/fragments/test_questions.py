"""Number of questions of a page to the live store."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from annotations.clock import ManualClock
from annotations.labels import Expiration, Fact, Interval
from annotations.terms import Quad, Term
from tpf_server.app import create_app
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.store import LiveStore, open_live_store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUESTIONS = ("count", "facts", "next_change", "earliest_end")


def fact(number: int, seconds: float) -> Fact:
    quad = Quad(Term("<x:s>"), Term(f"<x:p{number}>"), Term('"1"'))
    return Fact(quad, Expiration(NOW + timedelta(seconds=seconds)))


@pytest.mark.parametrize(
    ("limit", "asked"),
    [
        # The whole fragment is on the page.
        (3, {"next_change": 1, "count": 1, "facts": 1}),
        (2, {"next_change": 1, "count": 3, "facts": 1, "earliest_end": 1}),
    ],
)
def test_a_small_fragment_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, asked: dict[str, int]
) -> None:
    store = open_live_store(tmp_path / "live.sqlite")
    interval = Interval(NOW - timedelta(seconds=1), NOW + timedelta(seconds=9))
    store.publish([fact(0, 7), fact(1, 5), fact(2, 0)._replace(label=interval)], NOW)
    questions: Counter[str] = Counter()

    def counted(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            questions[name] += 1
            return plain(*arguments)

        return ask

    for name in QUESTIONS:
        monkeypatch.setattr(LiveStore, name, counted(name, getattr(LiveStore, name)))
    dataset = OpenDataset(DatasetSettings(name="trains"), None, store)
    client = create_app(Settings(page_size=limit), [dataset], ManualClock(NOW)).test_client()
    page = client.get("/trains.nq").get_data(as_text=True)
    assert questions == asked
    # The labels of the whole fragment, whatever is on the page.
    assert 'labelling> "expiration"' in page
    assert 'labelling> "interval"' in page
    assert 'earliestExpiration> "2026-01-01T00:00:05Z"' in page
    store.close()
