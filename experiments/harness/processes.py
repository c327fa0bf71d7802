"""Measured processes on loopback, with CPU and memory from the operating system."""

import http.client
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

import psutil

from experiments.errors import ProcessFailedError


def cpu_time(process: psutil.Process) -> float:
    """Return user and system seconds, with all threads, without children."""
    with suppress(OSError):  # it has ended, or this system has no such clocks: psutil tells which
        return time.clock_gettime(cpu_clock(process.pid))
    times = process.cpu_times()
    return float(times.user + times.system)


def cpu_clock(pid: int) -> int:
    """Return Linux's clock of a process's CPU, as clock_getcpuclockid(3) makes it."""
    return (~pid << 3) | 2


LOOPBACK = "127.0.0.1"
_STOP_SECONDS = 15.0
_SHOWN_OUTPUT = 600


class Usage(NamedTuple):
    """CPU seconds of a process with its children, and the time."""

    cpu: float
    wall: float

    def since(self, earlier: "Usage") -> "Usage":
        return Usage(self.cpu - earlier.cpu, self.wall - earlier.wall)

    @property
    def percent_of_core(self) -> float:
        """Return CPU per time, in percent of one core."""
        return 100 * self.cpu / self.wall if self.wall > 0 else 0.0


class Process:
    """A process with its children; methods raise `ProcessFailedError` once it ended."""

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]", errors: IO[bytes]) -> None:
        self.name = name
        self.popen = popen
        self._errors = errors
        self._process = psutil.Process(popen.pid)
        self._seen: dict[int, float] = {}
        self._orders = 0

    @property
    def pid(self) -> int:
        return self.popen.pid

    def usage(self) -> Usage:
        for process in self._family():
            try:
                self._seen[process.pid] = cpu_time(process)
            except psutil.NoSuchProcess:
                continue
        return Usage(sum(self._seen.values()), time.perf_counter())

    def resident(self) -> int:
        """Return bytes of memory with children; shared pages count for each."""
        return sum(self.resident_each().values())

    def resident_each(self) -> dict[int, int]:
        bytes_by_process = {}
        for process in self._family():
            try:
                bytes_by_process[process.pid] = int(process.memory_info().rss)
            except psutil.NoSuchProcess:
                continue
        return bytes_by_process

    def _family(self) -> list[psutil.Process]:
        self.check()
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def check(self) -> None:
        status = self.popen.poll()
        if status is not None:
            raise ProcessFailedError(f"{self.name} ended with status {status}: {self.error_tail()}")

    def kill(self) -> None:
        for process in reversed(self._family()):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.popen.wait(_STOP_SECONDS)

    def error_tail(self) -> str:
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace")
        return " ".join(text[-_SHOWN_OUTPUT:].split()) or "it said nothing"

    def read_line(self, timeout: float) -> str:
        assert self.popen.stdout is not None
        if not select.select([self.popen.stdout], [], [], timeout)[0]:
            raise ProcessFailedError(
                f"{self.name} said nothing in {timeout:g} s: {self.error_tail()}"
            )
        line = self.popen.stdout.readline()
        if not line:
            self.popen.wait(_STOP_SECONDS)
            self.check()
        return line.decode("utf-8", "replace")

    def has_output(self) -> bool:
        """True if standard output is readable, or has ended."""
        assert self.popen.stdout is not None
        return bool(select.select([self.popen.stdout], [], [], 0)[0])

    def order(self, order: Mapping[str, Any]) -> int:
        """Send an order, a line of JSON; return its number."""
        self._orders += 1
        self.write_line(json.dumps({**order, "id": self._orders}))
        return self._orders

    def answer(self, number: int, timeout: float) -> dict[str, Any]:
        """Return the answer to an order, skipping late answers to earlier ones."""
        while True:
            answer: dict[str, Any] = json.loads(self.read_line(timeout))
            if answer.get("id") == number:
                return answer

    def ask(self, order: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        return self.answer(self.order(order), timeout)

    def write_line(self, text: str) -> None:
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(text.encode() + b"\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            raise ProcessFailedError(f"{self.name} ended: {self.error_tail()}") from None


@contextmanager
def started(
    name: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[Process]:
    """Start a process with pipes; stop it after the block."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TPF_SERVER_")}
    with tempfile.TemporaryFile() as errors:
        try:
            popen = subprocess.Popen(  # noqa: S603
                list(command), env=clean | dict(environment or {}), cwd=folder,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            raise ProcessFailedError(f"{name} cannot be started: {error}") from error
        try:
            yield Process(name, popen, errors)
        finally:
            stop(popen)


def stop(popen: "subprocess.Popen[bytes]") -> None:
    """Stop a process, and its children if it does not do that itself."""
    children: list[psutil.Process] = []
    if popen.poll() is None:
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(popen.pid).children(recursive=True)
        popen.terminate()
        try:
            popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
    for child in children:
        try:
            # The number may belong to another process by now: psutil compares the time of birth.
            child.kill()
        except psutil.NoSuchProcess:
            continue
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            pipe.close()


def python(module: str, *arguments: str) -> list[str]:
    """Return the command of a module with this Python."""
    return [sys.executable, "-m", module, *arguments]


def child(target: str, *arguments: str) -> list[str]:
    """Return the command of a child process: see `experiments.harness.child`."""
    return python("experiments.harness.child", target, *arguments)


def await_answer(process: Process, url: str, seconds: float) -> float:
    """Wait until a server answers with status 200; return the seconds."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        process.check()
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
        try:
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={"Accept": "*/*"})
            if connection.getresponse().status == 200:
                return time.perf_counter() - begin
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.02)
    raise ProcessFailedError(
        f"{process.name} does not answer in {elapsed:.0f} s: {process.error_tail()}"
    )
