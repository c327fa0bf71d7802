"""Records spooled on disk: complete, in order, each once."""

import errno
import os
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from annotations.clock import ManualClock
from experiments.free_port import free_port
from loaders.errors import InputError, SettingError
from loaders.stream.event_source import Subscriber
from loaders.stream.spool import Spool

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_messages_land_in_sequence_and_what_is_sent_again_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "nt", ManualClock(NOON))
    first = spool.land("a", b"1", again=False)
    # The same once more is another message, unless the broker says that it is not.
    second = spool.land("a", b"1", again=False)
    assert spool.land("a", b"1", again=True) is None
    third = spool.land("b", b"1", again=True)
    assert first is not None
    assert third is not None
    found = names(tmp_path / "spool")
    assert found == [path.name for path in (first, second, third) if path is not None]
    assert all(name.endswith(".nt") for name in found)
    assert third.read_bytes() == b"1"


def test_a_message_that_is_there_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, "nt", ManualClock(NOON))
    fsync = os.fsync

    def of_files_alone(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "a directory")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files_alone)
    said: list[str] = []
    leaving = threading.Event()
    leaving.set()
    assert spool.land_surely("a", b"1", again=False, leaving=leaving, troubled=said.append)
    assert said == []
    assert len(names(spool.directory)) == 1


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_read_leaves_the_spool_when_its_batch_is_complete(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    spool = Spool(tmp_path, "nt", clock, remembered=2)
    landed = []
    for number in range(4):
        path = spool.land("a", b"%d" % number, again=False)
        assert path is not None
        landed.append(path.name)
    spool.batch_done(0, landed[:3])
    assert names(spool.directory) == landed
    # A crash: the same micro-batch starts again, and its files are still there.
    spool = Spool(tmp_path, "nt", clock, remembered=2)
    spool.batch_done(0, landed[:3])
    assert names(spool.directory) == landed
    # A crash between its end and the start of the next one.
    spool = Spool(tmp_path, "nt", clock, remembered=2)
    spool.batch_done(1, landed[3:])
    assert names(spool.directory) == landed[3:]
    # The last ones that were read are remembered, be they of an earlier process.
    assert spool.land("a", b"2", again=True) is None
    assert spool.land("a", b"3", again=True) is None
    assert spool.land("a", b"0", again=True) is not None
    spool.batch_done(2, [])
    assert landed[3] not in names(spool.directory)


def test_what_was_being_written_in_a_crash_is_no_message(tmp_path: Path) -> None:
    landed = Spool(tmp_path, "nt", ManualClock(NOON)).land("a", b"1", again=False)
    assert landed is not None
    landed.rename(landed.with_name(f".{landed.name}"))
    spool = Spool(tmp_path, "nt", ManualClock(NOON))
    assert spool.land("a", b"1", again=True) == landed
    assert names(spool.directory) == [landed.name]


def test_brokers_that_are_none(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "nt", ManualClock(NOON))
    for url in ("http://localhost", "mqtt://h:abc", "mqtt://h:99999", "mqtt://[h", "mqtt://", "h"):
        with pytest.raises(SettingError, match="not the URL of a broker") as caught:
            Subscriber(url, "a", spool, "me")
        assert repr(url) in str(caught.value)
    for url in (f"mqtt://127.0.0.1:{free_port()}", "mqtt://a..b"):
        with (
            pytest.raises(InputError, match="no broker answers"),
            Subscriber(url, "a", spool, "me"),
        ):
            pass


def test_a_topic_that_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:

        def refuse() -> None:
            connection, _ = broker.accept()
            with connection:
                connection.recv(1_024)
                connection.sendall(b"\x20\x02\0\0")
                subscription = connection.recv(1_024)
                connection.sendall(b"\x90\x03" + subscription[2:4] + b"\x80")
                connection.recv(1_024)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        url = f"mqtt://127.0.0.1:{broker.getsockname()[1]}"
        spool = Spool(tmp_path, "nt", ManualClock(NOON))
        with (
            pytest.raises(InputError, match="refuses the topic"),
            Subscriber(url, "a", spool, "me"),
        ):
            pass
        thread.join(60)


class FullDisk(Spool):
    """Has no room for a while."""

    full = 2

    def land(self, topic: str, payload: bytes | bytearray, again: bool) -> Path | None:
        if self.full:
            self.full -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().land(topic, payload, again)


def test_a_full_disk_makes_nobody_deaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loaders.stream.spool._PAUSE_SECONDS", 0.001)
    spool, said = FullDisk(tmp_path, "nt", ManualClock(NOON)), list[str]()
    subscriber = Subscriber("mqtt://127.0.0.1", "a", spool, "me", said.append)
    client = MagicMock()
    message = MagicMock(topic="a", payload=b"1", dup=False, mid=7, qos=1)
    subscriber._client.on_message(client, None, message)  # type: ignore[misc]
    client.ack.assert_called_once_with(7, 1)
    assert len(names(spool.directory)) == 1
    assert said == [f"{spool.directory}: No space left on device; trying again"]
    subscriber.check()
    # Whatever else ends the thread is noticed.
    spool.land = MagicMock(side_effect=ValueError("a mistake"))  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="a mistake"):
        subscriber._client.on_message(client, None, message)  # type: ignore[misc]
    with pytest.raises(InputError, match="no longer received"):
        subscriber.check()


def test_what_could_not_be_written_leaves_no_room_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, "nt", ManualClock(NOON))

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        spool.land("a", b"1", again=False)
    assert list(spool.directory.iterdir()) == []
