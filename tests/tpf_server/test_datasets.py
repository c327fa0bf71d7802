"""Datasets are reopened when settings change; live facts are read once."""

import gc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from annotations.labels import Expiration, Fact
from annotations.methods.base import FactPattern
from annotations.terms import Quad, QuadPattern, Term, Variable
from tests.support.stores import CREATED
from tpf_server.app import DatasetOpener
from tpf_server.configuration import Configuration
from tpf_server.errors import StoreClosedError, StoreError
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.fragments.view import Plain
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.log import Record
from tpf_server.store.live.sqlite_log import SqliteLog
from tpf_server.store.live.store import LiveStore
from tpf_server.store.static.indexing import index_files

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOTH = Quad(Term("<x:a>"), Term("<x:p>"), Term("<x:b>"))
EVERYTHING = QuadPattern(*map(Variable, ("?s", "?p", "?o", "?g")))


def expiring(quad: Quad, seconds: float = 60) -> Fact:
    return Fact(quad, Expiration(NOW + timedelta(seconds=seconds)))


def configuration(folder: Path, **dataset: Any) -> Configuration:
    source = str(folder / "trains.store")
    settings: dict[str, Any] = {"name": "trains", "source": source, "live": True, **dataset}
    return Configuration(Settings(data_dir=str(folder / "data")), (DatasetSettings(**settings),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trains.nt").write_text("<x:a> <x:p> <x:b> .\n")
    index_files([tmp_path / "trains.nt"], tmp_path / "trains.store", created=CREATED)
    return tmp_path


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """The records that are read of logs."""
    found: list[Record] = []
    read = SqliteLog.read

    def counted(log: SqliteLog, after: int, limit: int | None = None) -> Iterator[Record]:
        for record in read(log, after, limit):
            found.append(record)
            yield record

    monkeypatch.setattr(SqliteLog, "read", counted)
    return found


def live_of(dataset: OpenDataset) -> LiveStore:
    assert isinstance(dataset.live, LiveStore)
    return dataset.live


def hidden(dataset: OpenDataset) -> int:
    """Count the static quads hidden by live facts."""
    assert dataset.overlap is not None
    naming: Any = None
    parts = Plain().match(EVERYTHING, naming)
    return len(dataset.overlap.hidden(EVERYTHING, parts, live_of(dataset).snapshot(NOW)))


def test_a_live_store_that_stays_is_read_once(folder: Path, records: list[Record]) -> None:
    opener = DatasetOpener()
    (old,) = opener.open(configuration(folder))
    live = live_of(old)
    live.publish([expiring(BOTH)], NOW)
    records.clear()
    (new,) = opener.open(configuration(folder, title="Trains", page_size=7))
    assert records == []
    assert (hidden(old), hidden(new)) == (1, 1)
    old.close()
    # The old one hears nothing any more; its static store is closed.
    live.publish([expiring(BOTH, 90)], NOW)
    assert (new.live, hidden(new), len(live._listeners.watchers)) == (live, 1, 1)
    assert live.count(FactPattern(), live.snapshot(NOW)) == 1
    new.close()
    assert live._listeners.watchers == []
    with pytest.raises(StoreClosedError):
        live.snapshot(NOW)


def test_one_that_was_closed_or_is_kept_otherwise_is_opened_anew(folder: Path) -> None:
    opener = DatasetOpener()
    (first,) = opener.open(configuration(folder))
    live_of(first).publish([expiring(BOTH)], NOW)
    (other,) = opener.open(configuration(folder, retention=7.0))
    assert other.live is not first.live
    assert (hidden(first), hidden(other)) == (1, 1)
    first.close()
    (again,) = opener.open(configuration(folder))
    assert again.live is not first.live
    assert hidden(again) == 1
    for dataset in (again, other):
        dataset.close()
    del first, other, again, dataset
    gc.collect()
    assert len(opener._live) == 0


def test_what_was_opened_is_let_go_where_the_rest_cannot_be(folder: Path) -> None:
    opener = DatasetOpener()
    (old,) = opener.open(configuration(folder))
    missing = DatasetSettings(name="missing", source=str(folder / "missing.nt"))
    wanted = configuration(folder)
    with pytest.raises(StoreError):
        opener.open(wanted._replace(datasets=(*wanted.datasets, missing)))
    live = live_of(old)
    assert len(live._listeners.watchers) == 1
    old.close()
    with pytest.raises(StoreClosedError):
        live.snapshot(NOW)
