"""Measured processes: CPU, memory, and that none is left behind."""

import sys
import textwrap
import time
from contextlib import suppress

import psutil
import pytest

from experiments.errors import ProcessFailedError
from experiments.free_port import free_port
from experiments.harness.processes import await_answer, python, started

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
