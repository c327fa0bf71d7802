"""Measured processes: CPU, memory, and that none is left behind."""

import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from experiments.errors import ProcessFailedError
from experiments.free_port import free_port
from experiments.harness import processes as module
from experiments.harness.processes import await_answer, cpu_time, python, started

BUSY = textwrap.dedent(
    """
    import multiprocessing, sys, time
    def burn(seconds):
        while time.process_time() < seconds:
            pass
    if __name__ == "__main__":
        multiprocessing.set_start_method("fork")
        child = multiprocessing.Process(target=burn, args=(0.5,))
        child.start()
        burn(0.3)
        print(child.pid, flush=True)
        sys.stdin.readline()
        child.join()
        print("over", flush=True)
        sys.stdin.readline()
    """
)


def test_cpu_of_a_process_and_its_children_counts_even_when_they_have_ended() -> None:
    with started("busy", [sys.executable, "-c", BUSY]) as process:
        process.read_line(30)
        while process.usage().cpu < 0.75:
            time.sleep(0.05)
        process.write_line("")
        assert process.read_line(30) == "over\n"
        usage = process.usage()
        assert 0.75 <= usage.cpu < 2
        assert usage.since(usage).cpu == 0
        assert process.resident() > 2**20


def test_nothing_is_left_behind() -> None:
    forever = "import subprocess, sys, time; "
    forever += "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    forever += "print(c.pid, flush=True); time.sleep(600)"
    with started("parent", [sys.executable, "-c", forever]) as process:
        child = psutil.Process(int(process.read_line(30)))
    assert process.popen.poll() is not None
    deadline = time.monotonic() + 30
    # It may be gone between two looks.
    with suppress(psutil.NoSuchProcess):
        while child.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the child goes on"
            time.sleep(0.05)


def test_answers_to_an_order_that_was_given_up_are_passed_over() -> None:
    echo = "import json, sys\n"
    echo += "for line in sys.stdin:\n"
    echo += "    order = json.loads(line)\n"
    echo += "    print(json.dumps({'id': order['id'], 'said': order['say']}), flush=True)\n"
    with started("echo", [sys.executable, "-c", echo]) as process:
        first = process.order({"say": "one"})
        assert process.ask({"say": "two"}, 30)["said"] == "two"
        with pytest.raises(ProcessFailedError, match="said nothing"):
            process.answer(first, 0.1)


def test_a_process_that_ends_too_early_says_why() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no disk')"]
    with started("server", command) as process:
        with pytest.raises(ProcessFailedError, match="server ended with status 1: no disk"):
            await_answer(process, f"http://127.0.0.1:{free_port()}/", 30)
        with pytest.raises(ProcessFailedError, match="no disk"):
            process.read_line(30)


def test_a_program_that_is_not_there() -> None:
    with (
        pytest.raises(ProcessFailedError, match="cannot be started"),
        started("nothing", ["/nowhere/nothing"]),
    ):
        pass


def test_seconds_until_a_server_answers() -> None:
    port = free_port()
    with started("server", python("http.server", str(port), "--bind", "127.0.0.1")) as process:
        assert await_answer(process, f"http://127.0.0.1:{port}/", 30) > 0


# CPU of other processes, finer than a tick of the system.

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


@pytest.mark.skipif(sys.platform != "linux", reason="no CPU clocks of processes here")
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
    monkeypatch.setattr(module, "cpu_clock", lambda _pid: 1 << 30)
    assert cpu_time(psutil.Process(worker.pid)) == pytest.approx(said, abs=0.05)


def test_a_process_that_has_ended(worker: "subprocess.Popen[bytes]") -> None:
    process = psutil.Process(worker.pid)
    worker.kill()
    worker.wait()
    with pytest.raises(psutil.NoSuchProcess):
        cpu_time(process)
