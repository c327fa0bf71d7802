"""``./run demo``: a live departure board, end to end, by the project's own commands.

``tpf-load`` makes the static facts, ``tpf-server`` serves them as fragments, ``tpf-replay``
publishes what changes, and ``tpf-query --watch`` keeps the answer up to date on the client.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import IO, Annotated

import typer

from annotations.instants import format_instant
from experiments.workloads.trains import train_query
from loaders.sources.irail import Irail
from tpf_client import Client

_FIRST_FACTS_SECONDS = 60
_STOP_SECONDS = 10
_SHOWN = timedelta(hours=1, minutes=30)


class DemoError(Exception):
    """A part of the demo did not start or ended too early."""

    exit_status = 1


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded feed and the hour of it that is shown.

    Args:
        source: name of the source for ``tpf-load`` and ``tpf-replay``.
        inputs: where the recording lies, as arguments of these commands.
        start: first instant of the feed that is played, and of the shown departures.
        until: instant at which the shown departures end.
        speed: seconds of the feed per second.
    """

    source: str
    inputs: tuple[str, ...]
    start: datetime
    until: datetime
    speed: float


def recording(data: str) -> Recording:
    """The flights that the package index offers, or a file of liveboards.

    Raises:
        LoaderError: the file is no recording of liveboards.
    """
    if data == "flights":
        # A summer evening with thunderstorms: many delays that grow.
        start = datetime(2013, 7, 22, 21, tzinfo=UTC)
        return Recording(data, (), start, start + _SHOWN, 60)
    span = Irail(Path(data)).span(None, None)
    if span is None:
        raise DemoError(f"{data}: there is no liveboard in it")
    return Recording("irail", (data,), span.start, span.start + _SHOWN, 60)


def run(data: str, seconds: float | None) -> None:
    """Load, serve, replay and watch; leaves no process and no file behind.

    Args:
        data: ``flights``, or the path of recorded liveboards (a zip file or a directory).
        seconds: how long to watch; ``None``: until interrupted.

    Raises:
        DemoError: a part did not start or ended too early.
        LoaderError: the recording cannot be read.
    """
    chosen = recording(data)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tpf-demo-")))
        _say(f"loading the static facts of {chosen.source}")
        with _process(_load_command(chosen, folder / "departures"), dict(os.environ)) as load:
            if load.wait():
                raise DemoError("the static facts could not be loaded")
        token = secrets.token_urlsafe()
        environment = os.environ | {
            "TPF_SERVER_PUBLISH_TOKEN": token,
            "TPF_SERVER_DATA_DIR": str(folder / "server"),
            "TPF_PUBLISH_TOKEN": token,
        }
        server = stack.enter_context(
            _process(
                ("tpf-server", str(folder / "departures"), "--port", "0"),
                environment,
                stderr=subprocess.PIPE,
            )
        )
        url = _url(server) + "departures"
        _say(f"serving {url} (open it in a browser)")
        replay = stack.enter_context(_process(_replay_command(chosen, url), environment))
        _await_first_facts(url, replay)
        start = format_instant(chosen.start)
        _say(f"replaying from {start}, {chosen.speed:g} times as fast; Ctrl-C ends it")
        query = folder / "board.rq"
        board = train_query(chosen.start, chosen.until) + "ORDER BY ?departureTime ?routeLabel\n"
        query.write_text(board, encoding="utf-8")
        watch = ["tpf-query", url, "--watch", "-f", str(query)]
        if seconds is not None:
            watch += ["--seconds", f"{seconds:g}"]
        with _process(watch, environment) as client:
            try:
                status = client.wait()
            except KeyboardInterrupt:
                return  # That is how a board is left.
            if status:
                raise DemoError(f"tpf-query ended with exit status {status}")


def _await_first_facts(url: str, replay: "subprocess.Popen[str]") -> None:
    """Wait until the replay has published something, so that the board does not begin empty."""
    deadline = time.monotonic() + _FIRST_FACTS_SECONDS
    while time.monotonic() < deadline:
        if replay.poll() is not None:
            raise DemoError(f"tpf-replay ended with exit status {replay.returncode}")
        with Client(url) as client:
            if client.query("ASK { ?departure <http://example.org/train#delay> ?delay }"):
                return
        time.sleep(0.1)
    raise DemoError("tpf-replay published nothing")


def _load_command(chosen: Recording, output: Path) -> tuple[str, ...]:
    span = (
        ("--from", format_instant(chosen.start), "--until", format_instant(chosen.until))
        if chosen.source == "flights"
        else ()
    )
    return ("tpf-load", chosen.source, *chosen.inputs, "--output", str(output), *span)


def _replay_command(chosen: Recording, url: str) -> tuple[str, ...]:
    return (
        "tpf-replay", chosen.source, *chosen.inputs, url, "--from", format_instant(chosen.start),
        "--speed", f"{chosen.speed:g}", "--quiet",
    )  # fmt: skip


def _url(server: "subprocess.Popen[str]") -> str:
    """The URL in the line that the server writes as soon as it answers; others are passed on."""
    assert server.stderr is not None
    for line in server.stderr:
        for word in line.split():
            if word.startswith("http://"):
                Thread(target=_pass_on, args=(server.stderr,), daemon=True).start()
                return word
        sys.stderr.write(line)
    raise DemoError("tpf-server did not start")


def _pass_on(said: IO[str]) -> None:
    with said:
        shutil.copyfileobj(said, sys.stderr)


def _resolved(command: Sequence[str]) -> list[str]:
    """The command of this very environment, whatever the search path says."""
    beside = Path(sys.executable).with_name(command[0])
    return [str(beside) if beside.exists() else command[0], *command[1:]]


@contextmanager
def _process(
    command: Sequence[str], environment: dict[str, str], stderr: int | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """A process that is ended when the block is left."""
    # A Ctrl-C goes to all processes of the terminal: only this one heeds it, and ends the others,
    # which inherit that it is held back.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(  # noqa: S603
            _resolved(command), env=environment, stderr=stderr, text=True
        )
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield process
        finally:
            _stop(process)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _say(text: str) -> None:
    typer.echo(f"tpf-demo: {text}", err=True)


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def main(
    seconds: Annotated[
        float | None, typer.Option(min=1, help="How long to watch; default: until Ctrl-C.")
    ] = None,
    data: Annotated[
        str, typer.Option(metavar="flights|FILE", help="The feed: flights, or liveboards.")
    ] = "flights",
) -> None:
    """Show a live departure board, computed by the client from time-labelled fragments."""
    run(data, seconds)
