from datetime import UTC, datetime
from pathlib import Path

import pytest

from annotations.clock import ManualClock
from loaders.errors import InputError, SettingError
from loaders.stream.mqtt import Spool, Subscriber
from tests.support.running_server import free_port

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_messages_land_in_sequence_and_what_is_sent_again_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "nt", ManualClock(NOON))
    first = spool.land("a", b"1", again=False)
    # The same once more is another message, unless the broker says that it is not.
    second = spool.land("a", b"1", again=False)
    assert spool.land("a", b"1", again=True) is None
    third = spool.land("b", b"1", again=True)
    assert first is not None
    assert third is not None
    names = sorted(path.name for path in (tmp_path / "spool").iterdir())
    assert names == [path.name for path in (first, second, third) if path is not None]
    assert all(name.endswith(".nt") for name in names)
    assert third.read_bytes() == b"1"


def test_brokers_that_are_none(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "nt", ManualClock(NOON))
    with pytest.raises(SettingError, match="not the URL of a broker"):
        Subscriber("http://localhost", "a", spool, "me")
    with (
        pytest.raises(InputError, match="no broker answers"),
        Subscriber(f"mqtt://127.0.0.1:{free_port()}", "a", spool, "me"),
    ):
        pass
