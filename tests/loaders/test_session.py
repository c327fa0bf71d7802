"""Messages when Spark does not start."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually

PROJECT = Path(__file__).parents[2]


pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java")]


@pytest.mark.parametrize(
    ("memory", "reason"),
    [
        ("banana", " (Invalid maximum heap size: -Xmxbanana);"),
        ("64m", ": org.apache.spark.SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY"),
    ],
)
def test_the_reason_is_said_in_one_line(tmp_path: Path, memory: str, reason: str) -> None:
    (tmp_path / "a.nt").write_text('<http://e/a> <http://e/p> "x" .\n')
    command = [sys.executable, "-m", "tpf_client.commands", "tpf-load", "rdf"]
    command += [str(tmp_path / "a.nt"), "-o", str(tmp_path / "store"), "--engine", "spark"]
    environment = os.environ | {"TPF_SPARK_MEMORY": memory, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tpf-load: Spark did not start{reason}")
    # The log that it points to is there.
    assert Path(line.rpartition("see ")[2]).exists()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("until", "sent"), [("spark-class", signal.SIGINT), ("SparkSubmit", signal.SIGTERM)]
)
def test_an_interrupt_while_spark_starts_leaves_nothing(
    tmp_path: Path, until: str, sent: signal.Signals
) -> None:
    (tmp_path / "a.nt").write_text('<http://e/a> <http://e/p> "x" .\n')
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "tpf_client.commands", "tpf-load", "rdf"]
    load = subprocess.Popen(
        [*command, str(tmp_path / "a.nt"), "-o", str(tmp_path / "store"), "--engine", "spark"],
        cwd=PROJECT,
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that run in the background inherit that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    try:
        started = psutil.Process(load.pid)
        eventually(
            lambda: any(until in each for each in command_lines(started.children(True))), load
        )
        children = started.children(True)
        os.killpg(load.pid, sent)
        _, said = load.communicate(timeout=60)
    finally:
        if load.poll() is None:
            os.killpg(load.pid, signal.SIGKILL)
    assert load.returncode == 128 + sent
    assert said == ("tpf-load: interrupted\n" if sent == signal.SIGINT else "")
    assert not psutil.wait_procs(children, timeout=30)[1]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.nt", "temporary"]
    assert not list((tmp_path / "temporary").iterdir())


def command_lines(processes: list[psutil.Process]) -> Iterator[str]:
    for process in processes:
        with suppress(psutil.Error):
            yield " ".join(process.cmdline())
