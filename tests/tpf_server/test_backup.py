"""``tpf-server backup`` and ``restore``, and a log that lost batches."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner

from annotations.instants import parse_instant
from annotations.labels import Expiration
from annotations.methods.base import FactPattern
from tests.support.running_server import RunningServer
from tests.support.served import quad
from tpf_server import backup
from tpf_server.cli import main
from tpf_server.errors import StoreError
from tpf_server.store.live.log import Contents
from tpf_server.store.live.store import open_live_store

CONFIG = "workers = 2\n[datasets.trains]\nlive = true\n"
END = Expiration(parse_instant("2999-01-01T00:00:00Z"))


def names(server: RunningServer) -> set[str]:
    body = requests.get(f"{server.origin}trains/plain.nq", timeout=30).text
    return {name for name in ("one", "two", "three") if f"example.org/{name}>" in body}


def test_a_backup_is_taken_and_restored_while_the_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = CliRunner()
    with RunningServer(tmp_path, CONFIG) as server:
        server.publish("trains", [quad("one", "p", "o")], END)
        done = command.invoke(main, ["backup", "trains", "copy", "--config", "server.toml"])
        assert (done.exit_code, done.stderr) == (0, "tpf-server: copy holds trains up to batch 1\n")
        server.publish("trains", [quad("two", "p", "o")], END)
        assert names(server) == {"one", "two"}
        done = command.invoke(main, ["restore", "trains", "copy", "--config", "server.toml"])
        assert done.stderr == "tpf-server: trains continues after batch 4\n"
        for _ in range(4):  # whichever worker answers
            assert names(server) == {"one"}
        server.publish("trains", [quad("three", "p", "o")], END)
        assert names(server) == {"one", "three"}
    for arguments, said in (
        (["backup", "trains", "copy"], "copy is there already"),
        (["backup", "nothing", "other"], "there is no live store"),
        (["restore", "trains", "server.toml"], "cannot read the backup server.toml"),
        (["backup", "x", "other", "--config", "server.toml"], "there is no dataset 'x'"),
    ):
        done = command.invoke(main, arguments)
        assert done.exit_code in (1, 2)
        assert said in done.stderr
    wal = tmp_path / ".tpf-server/live/trains.sqlite-last"
    wal.unlink()
    done = command.invoke(main, ["--config", "server.toml", "--port", "0"])
    assert done.exit_code == 1
    assert "has lost batches that were acknowledged" in done.stderr
    assert command.invoke(main, ["restore", "trains"]).exit_code == 0
    with closing(open_live_store(tmp_path / ".tpf-server/live/trains.sqlite")) as store:
        facts = store.facts(FactPattern(), store.snapshot(datetime.now(UTC)), 0, 9)
        assert {fact.quad for fact in facts} == {quad("one", "p", "o"), quad("three", "p", "o")}


def test_a_database_without_a_store_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Empty:
        def contents(self) -> Contents:
            return Contents({}, [], [])

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(backup, "open_log", lambda *_: Empty())
    with pytest.raises(StoreError, match=r"^trains is no live store$"):
        backup.restore("postgresql://u:secret@h/x", None, 0, "trains")


def test_a_backup_of_another_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = 'workers = 1\n[datasets.a]\nlive = true\n[datasets.b]\nlive = true\nkey = "triple"\n'
    command = CliRunner()
    with RunningServer(tmp_path, config) as server:
        for name in "ab":
            server.publish(name, [quad("one", "p", "o")], END)
            done = command.invoke(main, ["backup", name, f"of-{name}", "--config", "server.toml"])
            assert done.exit_code == 0
    for name, other in ("ab", "ba"):
        done = command.invoke(main, ["restore", name, f"of-{other}", "--config", "server.toml"])
        assert done.exit_code == 1
        assert f"of-{other} was made with key " in done.stderr
        # Where there is no store yet, it is the store.
        done = command.invoke(main, ["restore", name, f"of-{other}", "--data-dir", f"new-{name}"])
        assert done.exit_code == 0
