"""Processes whose end another thread has seen already."""

import multiprocessing
import os
from multiprocessing.process import BaseProcess

from tpf_server.supervisor import join_surely


def nothing() -> None:
    """Do nothing."""


def test_a_process_counts_as_ended_when_its_join_returns() -> None:
    process: BaseProcess = multiprocessing.get_context("spawn").Process(target=nothing)
    process.start()
    # Another thread has taken its end from the system, and has not told it yet.
    assert process.pid is not None
    _, status = os.waitpid(process.pid, 0)
    assert process.is_alive()
    looks = []
    tells = type(process._popen).poll  # type: ignore[attr-defined]

    def poll(flag: int = os.WNOHANG) -> int | None:
        looks.append(flag)
        if len(looks) > 5:
            process._popen.returncode = os.waitstatus_to_exitcode(status)  # type: ignore[attr-defined]
        found: int | None = tells(process._popen, flag)  # type: ignore[attr-defined]
        return found

    process._popen.poll = poll  # type: ignore[attr-defined]
    join_surely(process, 60)
    assert not process.is_alive()
    assert process.exitcode == 0


def test_a_process_that_goes_on_is_waited_for_no_longer_than_is_said() -> None:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=theirs.recv)
    process.start()
    join_surely(process, 0.01)
    assert process.is_alive()
    ours.send(None)
    join_surely(process, 60)
    assert process.exitcode == 0
