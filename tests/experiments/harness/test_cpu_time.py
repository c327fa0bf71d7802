"""CPU of other processes, finer than a tick of the system."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from experiments.harness import processes as module
from experiments.harness.processes import cpu_time

# Half of the work is done by a thread that has ended when the process says what it used.
WORK = """
import sys, threading, time
def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
worker = threading.Thread(target=burn, args=(0.1,))
worker.start()
worker.join()
burn(0.1)
print(time.process_time_ns(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def worker() -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(
        [sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


@pytest.mark.skipif(module._getcpuclockid is None, reason="no CPU clocks of processes here")
def test_ended_threads_count_and_ticks_do_not_matter(worker: "subprocess.Popen[bytes]") -> None:
    assert worker.stdout is not None
    said = int(worker.stdout.readline()) / 1e9
    seen = cpu_time(psutil.Process(worker.pid))
    assert said >= 0.2
    # Printing and waiting for a line are all that it does afterwards.
    assert said <= seen < said + 0.05
    assert seen * 1000 % 10 != 0


def test_without_such_clocks_ticks_are_counted(
    worker: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worker.stdout is not None
    said = int(worker.stdout.readline()) / 1e9
    monkeypatch.setattr(module, "_getcpuclockid", None)
    assert cpu_time(psutil.Process(worker.pid)) == pytest.approx(said, abs=0.05)


def test_a_process_that_has_ended(worker: "subprocess.Popen[bytes]") -> None:
    process = psutil.Process(worker.pid)
    worker.kill()
    worker.wait()
    with pytest.raises(psutil.NoSuchProcess):
        cpu_time(process)
