"""The real ``tpf-server`` over loopback."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner

from annotations.clock import SystemClock
from annotations.labels import Expiration
from tests.support.eventually import eventually
from tests.support.running_server import (
    COMMAND,
    STOP_SECONDS,
    RunningServer,
    own_environment,
    workers_of,
)
from tests.support.served import quad
from tpf_server.app import create_app
from tpf_server.claimed_port import claimed_port
from tpf_server.cli import _heed, configure, main
from tpf_server.configuration import settings_help
from tpf_server.errors import ListenError
from tpf_server.supervisor import SignalFlag

LASTING = Expiration(datetime(2999, 1, 1, tzinfo=UTC))


def test_two_workers_agree_and_are_counted_together(tmp_path: Path) -> None:
    (tmp_path / "trains.nt").write_text("<http://example.org/t1> <http://example.org/p> <x:y> .\n")
    with RunningServer(tmp_path, "", "trains.nt", "--workers", "2") as server:
        url = server.url
        for number in range(5):
            # Another connection, perhaps another worker.
            server.publish("trains", [quad(f"t{number}", "delay", '"1"')], LASTING)
            for _ in range(6):
                page = requests.get(
                    f"{url}trains.nq?predicate=http://example.org/delay", timeout=30
                )
                lines = [line for line in page.text.splitlines() if "#metadata" not in line]
                assert len(lines) == number + 1
        assert 'dynamicTriples> "5"' in page.text
        assert requests.head(f"{url}trains", timeout=30).headers["ETag"]
        assert requests.get(f"{url}nothing", timeout=30).status_code == 404

        def added_up() -> str | None:
            """The metrics when each worker has added up what it answered: every second."""
            text = requests.get(f"{url}metrics", timeout=30).text
            count = re.search(r'tpf_requests_total{method="GET",status="200"} (\d+)', text)
            enough = count is not None and int(count[1]) >= 30
            return text if enough and 'status="404"} 1.0' in text else None

        text = eventually(added_up)
        assert re.search(r"^tpf_request_seconds_bucket", text, re.MULTILINE)
        # An interrupt from a terminal ends all processes; a second signal changes nothing.
        os.killpg(server.process.pid, signal.SIGINT)
        server.process.terminate()
        assert server.process.wait(STOP_SECONDS) == 0
        with pytest.raises(requests.ConnectionError):
            requests.get(server.url, timeout=30)


def test_an_interrupt_while_workers_start_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "trains.nt").write_text("")
    process = subprocess.Popen(
        [*COMMAND, "trains.nt", "--workers", "2", "--port", "0"],
        cwd=tmp_path,
        env=own_environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that run in the background inherit that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    try:
        eventually(lambda: process.poll() is not None or workers_of(process.pid))
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=STOP_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0
    assert said == "" or said.count("\n") == 1, said


def test_help_settings_lists_the_table() -> None:
    result = CliRunner().invoke(main, ["--help-settings"])
    assert (result.exit_code, result.output) == (0, settings_help() + "\n")


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ([], 2, "nothing to serve"),
        (["missing.nt"], 2, "missing.nt"),
        (["bad.nt"], 1, "bad.nt"),
        (["good.nt", "good.nt"], 2, "two datasets"),
        (["good.nt", "--port", "x"], 2, "--port"),
        (["good.nt", "--workers", "0"], 2, "workers"),
        (["good.nt", "--host", ""], 1, "host is empty"),
        (["good.nt", "--host", "no-such-host.invalid"], 1, "cannot listen on no-such-host.invalid"),
        (["good.nt", "--host", ".".join(["a" * 64] * 2)], 1, "cannot listen on aaa"),
    ],
)
def test_wrong_use_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    status: int,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.nt").write_text("")
    (tmp_path / "bad.nt").write_text("<http://example.org/a> nonsense\n")
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == status, result.output
    assert says in result.output
    assert "Traceback" not in result.output


def test_streams_are_served_without_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    configuration = configure([], None, {"continuous": True})
    assert configuration.datasets == ()
    browser = create_app(configuration.server, (), SystemClock()).test_client()
    assert "no datasets yet" in browser.get("/", headers={"Accept": "text/html"}).text
    assert browser.get("/streams", headers={"Accept": "application/json"}).json == {"streams": []}


def test_a_query_on_spark_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tpf_server.continuous.spark.executor", None)
    server, _ = configure([], None, {"continuous": True, "publish_token": "secret"})
    text = "REGISTER QUERY q AS ASK FROM STREAM <s> [RANGE 1s STEP 1s] { ?a ?b ?c }"
    refused = create_app(server, (), SystemClock()).test_client().post(
        "/queries",
        json={"query": text, "engine": "spark"},
        headers={"Authorization": "Bearer secret"},
    )  # fmt: skip
    assert refused.status_code == 422
    assert "PySpark is not installed: in a clone of the project, ./run install" in refused.text


def test_an_address_that_is_taken_or_not_here_is_one_line(tmp_path: Path) -> None:
    def wait() -> None:
        raise AssertionError("it waits although nobody is about to end")

    (tmp_path / "trains.nt").write_text("")
    with (
        # A name stands for its address.
        RunningServer(tmp_path, "", "trains.nt", "--host", "localhost") as server,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        port = server.port
        if sys.platform == "linux":
            (worker,) = workers_of(server.process.pid)
            mark = f"@tpf-server/127.0.0.1/{port}/{worker.pid}\n"
            assert mark in Path("/proc/net/unix").read_text()
        second = subprocess.run(
            [*COMMAND, "trains.nt", "--port", str(port), "--workers", "2"],
            cwd=tmp_path,
            env=own_environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        reason = f"cannot listen on 127.0.0.1:{port}: Address already in use"
        assert (second.returncode, second.stderr) == (1, f"tpf-server: {reason}\n")
        assert requests.get(server.url, timeout=30).ok
        assert refused_claim("127.0.0.1", port, wait) == reason
        taken = refused_claim("127.0.0.1", other.getsockname()[1], wait)
        assert taken.endswith(": Address already in use")
    assert refused_claim("192.0.2.1", 3000) == (
        "cannot listen on 192.0.2.1:3000: Cannot assign requested address"
    )
    assert "no-such-host.invalid" in refused_claim("no-such-host.invalid", 3000)


def test_of_two_servers_that_start_at_once_one_listens() -> None:
    with claimed_port("127.0.0.1", 0) as port:
        # Nobody listens yet.
        assert "Address already in use" in refused_claim("127.0.0.1", port)
    with claimed_port("127.0.0.1", port):
        pass


def refused_claim(host: str, port: int, wait: Callable[[], object] = lambda: None) -> str:
    with pytest.raises(ListenError) as refusal, claimed_port(host, port, wait):
        pass
    return str(refusal.value)


def test_an_error_does_not_keep_later_signals_from_being_heeded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    signals = iter([True, True, False])

    class Flag(SignalFlag):
        def wait(self, timeout: float | None = None) -> bool:
            return next(signals)

    def fail() -> None:
        raise RuntimeError("odd")

    _heed(Flag(), fail)
    assert [record.message for record in caplog.records] == ["the settings stay as they were"] * 2


def test_numbers_of_seconds_have_flags(tmp_path: Path) -> None:
    bad = CliRunner().invoke(main, ["--source-interval", "inf", str(tmp_path)])
    assert bad.exit_code == 2
    assert "source_interval is a number of seconds, at most 1000000000, not inf" in bad.output
