"""``./run demo``: a live departure board by the project's own commands."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import IO, Annotated, Final

import typer

import tpf_client
from annotations.instants import format_instant
from experiments.free_port import free_port
from tpf_client.errors import ClientError
from tpf_client.page_runtime import runtime_folder

_FIRST_FACTS_SECONDS = 60
_STOP_SECONDS = 60
_LOOK_SECONDS = 2.0
"""Between two looks whether anything is left on the board."""
_SHOWN = timedelta(hours=1, minutes=30)
_LATEST = timedelta(hours=12)
"""How long after their time departures are still on the board."""


_CLOCK: Final = "http://example.org/train#clock"
_PREFIXES: Final = """\
PREFIX t: <http://example.org/train#>
PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
"""
_DEPARTURES: Final = """\
{{
  ?departure t:delay ?delay ; t:platform ?platform ;
             t:departureTime ?time ; t:headSign ?headSign ; t:routeLabel ?routeLabel .
  FILTER (?time > "{start}"^^xsd:dateTime && ?time < "{until}"^^xsd:dateTime)
}}"""
_BOARD: Final = """\
# The board
{prefixes}SELECT (SUBSTR(STR(?time), 12, 5) AS ?leaves) ?headSign ?routeLabel ?platform
       (xsd:integer(ROUND(?delay / 60)) AS ?minutesLate)
WHERE {{
{departures} UNION {{
  t:clock rdf:value ?time
  BIND ("--- now ---" AS ?headSign)
}} }}
ORDER BY ?time ?routeLabel
"""


_EXAMPLES = (
    """\
# The longest delays
PREFIX t: <http://example.org/train#>
SELECT ?headSign ?routeLabel ?delay WHERE {
  ?departure t:delay ?delay ; t:headSign ?headSign ; t:routeLabel ?routeLabel
}
ORDER BY DESC(?delay)
LIMIT 20
""",
    """\
# Delays by destination
PREFIX t: <http://example.org/train#>
SELECT ?headSign (COUNT(*) AS ?departures) (MAX(?delay) AS ?longest) WHERE {
  ?departure t:delay ?delay ; t:headSign ?headSign
}
GROUP BY ?headSign
ORDER BY DESC(?longest)
""",
    """\
# How many departures each platform has
PREFIX t: <http://example.org/train#>
SELECT ?platform (COUNT(*) AS ?departures) WHERE { ?departure t:platform ?platform }
GROUP BY ?platform
ORDER BY DESC(?departures)
""",
    """\
# Everything that is known of delays
PREFIX t: <http://example.org/train#>
SELECT * WHERE { ?departure t:delay ?delay }
""",
)
"""Queries that the page offers beside the board."""


class DemoError(Exception):
    """A part of the demo did not start or ended too early."""

    exit_status = 1


@dataclass(frozen=True, slots=True)
class RecordedHour:
    """A recorded feed and the hour of it that is shown."""

    source: str
    inputs: tuple[str, ...]
    start: datetime
    until: datetime
    speed: float
    zone: str = "UTC"


def recorded_hour(data: str) -> RecordedHour:
    """Return the packaged flights, or a file of liveboards."""
    if data == "flights":
        # A summer evening with thunderstorms: many delays that grow.
        start = datetime(2013, 7, 22, 21, tzinfo=UTC)
        return RecordedHour(data, (), start, start + _SHOWN, 60, "America/New_York")
    from loaders.sources.irail import Irail  # what the flights can do without comes later

    span = Irail(Path(data)).span(None, None)
    if span is None:
        raise DemoError(f"{data}: there is no liveboard in it")
    return RecordedHour("irail", (data,), span.start, span.start + _SHOWN, 60)


def run_demo(data: str, seconds: float | None) -> None:
    """Load, serve, replay and watch; leave no process or file behind."""
    chosen = recorded_hour(data)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tpf-demo-")))
        token = secrets.token_urlsafe()
        environment = {
            "TPF_SERVER_PUBLISH_TOKEN": token,
            "TPF_SERVER_DATA_DIR": str(folder / "server"),
            "TPF_PUBLISH_TOKEN": token,
        }
        span = {"start": format_instant(chosen.start), "until": format_instant(chosen.until)}
        departures = _DEPARTURES.format(**span)
        board = _BOARD.format(prefixes=_PREFIXES, departures=departures)
        examples = folder / "examples"
        examples.mkdir()
        for number, text in enumerate((board, *_EXAMPLES), 1):
            (examples / f"{number}.rq").write_text(text, encoding="utf-8")
        _say(f"loading the static facts of {chosen.source}")
        loading = _started(stack, _load_command(chosen, folder / "loaded"))
        # Meanwhile a dataset without static facts is served.
        served = folder / "departures"
        served.mkdir()
        (served / "nothing.nt").touch()
        port = free_port()
        command = ("tpf-server", str(served), "--port", str(port),
                   "--query-examples", str(examples))  # fmt: skip
        server = _started(stack, command, environment, stderr=subprocess.PIPE)
        url = f"http://127.0.0.1:{port}/departures"
        # It starts as long as the server does, and sends again what comes too early.
        play = partial(_started, stack, _replay_command(chosen, url), environment)
        replay = play()
        _url(server)
        soon = "" if runtime_folder() else " (in a minute: it fetches Python for browsers)"
        if soon:
            fetch = "from tpf_client.page_runtime import fetched_runtime as fetch; fetch()"
            _started(stack, ("python", "-c", fetch), stderr=subprocess.DEVNULL)
        _say(f"open the board in a browser: {url}/query/#example=1{soon}")
        _say(f"serving {url}")
        if loading.wait():
            raise DemoError("the static facts could not be loaded")
        served.rename(folder / "before")
        (folder / "loaded").rename(served)
        server.send_signal(signal.SIGHUP)
        _await_facts(url, replay)
        _say(
            f"replaying from {span['start']}, {chosen.speed:g} times as fast, "
            "from there again when the board is empty; Ctrl-C ends it"
        )
        watch = ["tpf-query", url, "--watch", "-f", str(examples / "1.rq")]
        if seconds is not None:
            watch += ["--seconds", f"{seconds:g}"]
        client = _started(stack, watch)
        try:
            status = _play_until_it_ends(client, replay, play, url, f"{_PREFIXES}ASK {departures}")
        except KeyboardInterrupt:
            return  # That is how a board is left.
        if status:
            raise DemoError(f"tpf-query ended with exit status {status}")


def _play_until_it_ends(
    client: "subprocess.Popen[str]",
    replay: "subprocess.Popen[str]",
    play: Callable[[], "subprocess.Popen[str]"],
    url: str,
    anything: str,
) -> int:
    had_rows = False
    while True:
        with suppress(subprocess.TimeoutExpired):
            return client.wait(_LOOK_SECONDS)
        status = replay.poll()
        if status:
            raise DemoError(f"tpf-replay ended with exit status {status}")
        with tpf_client.Client(url) as reader, suppress(ClientError):
            has_rows = bool(reader.query(anything))
            # The first departures may not be on the board yet.
            over = not has_rows and (had_rows or status is not None)
            had_rows = has_rows
            if over:
                _stop(replay)
                replay = play()


def _await_facts(url: str, replay: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + _FIRST_FACTS_SECONDS
    while time.monotonic() < deadline:
        if replay.poll() is not None:
            raise DemoError(f"tpf-replay ended with exit status {replay.returncode}")
        with tpf_client.Client(url) as client:
            if client.query(
                f"{_PREFIXES}ASK {{ ?live t:delay ?delay . ?static t:headSign ?sign }}"
            ):
                return
        time.sleep(0.05)
    raise DemoError("tpf-replay published nothing")


def _load_command(chosen: RecordedHour, output: Path) -> tuple[str, ...]:
    span = (
        ("--from", format_instant(chosen.start), "--until", format_instant(chosen.until))
        if chosen.source == "flights"
        else ()
    )
    return ("tpf-load", chosen.source, *chosen.inputs, "--output", str(output), *span)


def _replay_command(chosen: RecordedHour, url: str) -> tuple[str, ...]:
    return (
        "tpf-replay", chosen.source, *chosen.inputs, url, "--from", format_instant(chosen.start),
        "--until", format_instant(chosen.until + _LATEST), "--speed", f"{chosen.speed:g}",
        # Intervals tell what held when, so that one can go back in the page.
        "--label", "interval", "--quiet", "--clock", _CLOCK, "--zone", chosen.zone,
    )  # fmt: skip


def _url(server: "subprocess.Popen[str]") -> str:
    assert server.stderr is not None
    for line in server.stderr:
        for word in line.split():
            if word.startswith("http://"):
                Thread(target=_pass_on, args=(server.stderr,), daemon=True).start()
                return word
        sys.stderr.write(line)
    raise DemoError("a server did not start")


def _pass_on(lines: IO[str]) -> None:
    with lines:
        shutil.copyfileobj(lines, sys.stderr)


def _resolved(command: Sequence[str]) -> list[str]:
    beside = Path(sys.executable).with_name(command[0])
    return [str(beside) if beside.exists() else command[0], *command[1:]]


def _started(
    stack: ExitStack,
    command: Sequence[str],
    environment: Mapping[str, str] = MappingProxyType({}),
    stderr: int | None = None,
) -> "subprocess.Popen[str]":
    with _signals_held_back():
        process = subprocess.Popen(  # noqa: S603
            _resolved(command), env=os.environ | environment, stderr=stderr, text=True
        )
        stack.callback(_stop, process)
    return process


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Delay signals until all started processes are known: these ignore Ctrl-C."""
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: came.append(number)) for number in _ENDINGS
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for each in came:
        if callable(handler := handlers[signal.Signals(each)]):
            handler(each, None)


_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    run_demo(data, seconds)
