"""A log that lost acknowledged batches is refused until restored."""

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from annotations.instants import to_micros
from annotations.labels import Expiration, Fact
from annotations.methods.base import FactPattern
from annotations.terms import Quad, Term
from tests.support.postgres import Address
from tpf_server.backup import back_up, restore
from tpf_server.errors import CorruptStoreError, StoreError
from tpf_server.store.live.sqlite_log import Acknowledged, Last
from tpf_server.store.live.store import LiveStore, open_live_store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = to_micros(NOW) + 1_000_000
BATCHES = 12
EVERY = int(os.environ.get("TPF_WAL_STEP", "997"))
"""One of so many bytes of the log is cut or turned; 1: every byte."""


def fact(number: int) -> Fact:
    quad = Quad(Term(f"<http://x/s{number}>"), Term("<http://x/p>"), Term(f'"{"x" * 40}"'))
    return Fact(quad, Expiration(NOW + timedelta(days=1)))


def publish(store: LiveStore, first: int, count: int) -> int:
    receipts = [store.publish([fact(first + n)], NOW, f"b{first + n}") for n in range(count)]
    return receipts[-1].sequence


def numbers(store: LiveStore) -> int:
    return store.count(FactPattern(), store.snapshot(NOW))


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A store of a killed process: its last batches are in the ``-wal`` file alone."""
    running = tmp_path / "running"
    running.mkdir()
    store = open_live_store(running / "log.sqlite")
    assert publish(store, 0, BATCHES) == BATCHES
    folder = tmp_path / "crashed"
    shutil.copytree(running, folder)
    (folder / "log.sqlite-shm").unlink()
    store.close()
    return folder / "log.sqlite"


def refused_or_complete(path: Path) -> bool:
    """Return True if it is refused, with its files unchanged."""
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    try:
        store = open_live_store(path)
    except StoreError:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-last"):
            assert (path.parent / name).exists() == (name in before), name
            if name in before:
                assert (path.parent / name).read_bytes() == before[name], name
        return True
    with closing(store):
        assert numbers(store) == BATCHES
    return False


def restored_files(path: Path, files: dict[str, bytes]) -> None:
    for file in path.parent.iterdir():
        file.unlink()
    for name, content in files.items():
        (path.parent / name).write_bytes(content)


def test_a_log_that_was_killed_is_complete(crashed: Path) -> None:
    assert crashed.with_name("log.sqlite-wal").stat().st_size > 10_000
    assert not refused_or_complete(crashed)


@pytest.mark.parametrize("missing", ["log.sqlite-wal", "log.sqlite", "log.sqlite-last"])
def test_a_file_that_is_missing_is_noticed(crashed: Path, missing: str) -> None:
    crashed.with_name(missing).unlink()
    with pytest.raises(CorruptStoreError, match="has lost batches that were acknowledged") as error:
        open_live_store(crashed)
    assert "tpf-server restore" in str(error.value)
    assert refused_or_complete(crashed)


@pytest.mark.parametrize("kind", ["cut", "turned"])
def test_bytes_of_the_wal_that_are_cut_or_turned_are_noticed(crashed: Path, kind: str) -> None:
    files = {file.name: file.read_bytes() for file in crashed.parent.iterdir()}
    wal = files["log.sqlite-wal"]
    refused = 0
    for place in range(0, len(wal), EVERY):
        damaged = wal[:place]
        if kind == "turned":
            damaged = wal[:place] + bytes([wal[place] ^ 0xFF]) + wal[place + 1 :]
        restored_files(crashed, {**files, "log.sqlite-wal": damaged})
        refused += refused_or_complete(crashed)
    assert refused > len(wal) / EVERY / 2


def test_bytes_of_the_number_kept_apart_are_noticed(crashed: Path) -> None:
    files = {file.name: file.read_bytes() for file in crashed.parent.iterdir()}
    last = files["log.sqlite-last"]
    for place in range(0, len(last), 9):
        for damaged in (last[:place], last[:place] + b"?" + last[place + 1 :]):
            restored_files(crashed, {**files, "log.sqlite-last": damaged})
            assert refused_or_complete(crashed)


def test_another_log_with_as_many_batches_is_noticed(crashed: Path, tmp_path: Path) -> None:
    with closing(open_live_store(tmp_path / "other.sqlite")) as other:
        publish(other, 100, BATCHES)
    (tmp_path / "other.sqlite").rename(crashed)
    crashed.with_name("log.sqlite-wal").unlink()
    with pytest.raises(CorruptStoreError, match="is not the one that was acknowledged"):
        open_live_store(crashed)


def test_a_log_from_before_is_taken_as_it_is(crashed: Path) -> None:
    with closing(open_live_store(crashed)):
        pass
    with closing(sqlite3.connect(crashed)) as connection, connection:
        connection.execute("DELETE FROM settings WHERE name = 'kept_apart'")
    crashed.with_name("log.sqlite-last").unlink()
    with closing(open_live_store(crashed)) as store:
        assert numbers(store) == BATCHES
    crashed.with_name("log.sqlite-last").unlink()
    with pytest.raises(CorruptStoreError):
        open_live_store(crashed)


def test_what_is_left_goes_on_behind_all_numbers_that_were_given(crashed: Path) -> None:
    wal = crashed.with_name("log.sqlite-wal")
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2])
    assert refused_or_complete(crashed)
    assert restore(crashed, None, LATER) == BATCHES + 2
    with closing(open_live_store(crashed)) as store:
        assert 0 < numbers(store) < BATCHES
        assert publish(store, 50, 1) == BATCHES + 3


def test_a_backup_is_what_was_there_and_is_restored_while_servers_run(
    address: Address, tmp_path: Path
) -> None:
    file = tmp_path / "backup"
    with closing(address.open()) as publisher, closing(address.open()) as reader:
        publish(publisher, 0, 6)
        publisher.publish([], NOW, "gone", [Fact(fact(5).quad)])
        assert back_up(address.place, file, address.name) == 7
        publish(publisher, 6, 3)
        assert numbers(reader) == 8
        with pytest.raises(StoreError, match="is there already"):
            back_up(address.place, file, address.name)
        assert restore(address.place, file, LATER, address.name) == 12
        for store in (reader, publisher):
            assert numbers(store) == 5
        # Its batches are known, those that were lost are not.
        assert publisher.publish([fact(4)], NOW, "b4").repeated
        assert publisher.publish([], NOW, "gone", [Fact(fact(4).quad)]).repeated
        assert publish(publisher, 6, 1) == 13
        assert numbers(reader) == 6
    with closing(address.open()) as store:
        assert numbers(store) == 6


def test_a_backup_makes_a_store_where_there_is_none(crashed: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    assert back_up(crashed, file) == BATCHES
    elsewhere = tmp_path / "elsewhere.sqlite"
    assert restore(elsewhere, file, LATER) == BATCHES + 2
    with closing(open_live_store(elsewhere)) as store:
        assert numbers(store) == BATCHES


def test_a_log_that_cannot_be_read_is_put_aside_by_a_backup(crashed: Path, tmp_path: Path) -> None:
    back_up(crashed, tmp_path / "backup")
    crashed.write_bytes(b"no database" * 1000)
    crashed.with_name("log.sqlite-wal").unlink(missing_ok=True)
    with pytest.raises(StoreError):
        restore(crashed, None, LATER)
    assert restore(crashed, tmp_path / "backup", LATER) == BATCHES + 2
    assert crashed.with_name("log.sqlite.damaged").exists()
    with closing(open_live_store(crashed)) as store:
        assert numbers(store) == BATCHES


@pytest.mark.parametrize("content", [b"", b"no database"])
def test_what_is_no_backup_is_refused(crashed: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(StoreError):
        restore(crashed, tmp_path / "file", LATER)
    assert not refused_or_complete(crashed)


def test_a_first_batch_beside_an_opening_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.sqlite"
    publisher = open_live_store(path)
    read, looks = Acknowledged.read, 0

    def read_then_publish(self: Acknowledged) -> Last | None:
        nonlocal looks
        looks += 1
        last = read(self)
        if looks == 1:
            publish(publisher, 0, 1)
        return last

    monkeypatch.setattr(Acknowledged, "read", read_then_publish)
    store = open_live_store(path)
    assert looks > 1
    assert numbers(store) == 1
    store.close()
    publisher.close()


def test_the_newest_number_is_never_seen_half_written(tmp_path: Path) -> None:
    """Concurrent writers, and a reader."""
    for number in range(20):
        path = tmp_path / f"{number}-last"
        done = threading.Event()
        seen: list[Last | None] = []

        def watch(path: Path, done: threading.Event, seen: list[Last | None]) -> None:
            while not done.is_set():
                seen.append(Acknowledged(path).read())

        watcher = threading.Thread(target=watch, args=(path, done, seen))
        writers = [Acknowledged(path) for _ in range(4)]
        threads = [
            threading.Thread(target=writer.write, args=(Last(1, "0" * 32),)) for writer in writers
        ]
        watcher.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writers[0].write(Last(2, "1" * 32))
        done.set()
        watcher.join()
        assert Acknowledged(path).read() == Last(2, "1" * 32)
        assert set(seen) <= {None, Last(1, "0" * 32), Last(2, "1" * 32)}
        for writer in writers:
            writer.close()
        assert [file.name for file in tmp_path.glob(f"{number}-last*")] == [path.name]
