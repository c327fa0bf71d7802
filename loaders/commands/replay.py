"""``tpf-replay``: recorded feeds to a server."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import typer
from rich.console import Console

from annotations.clock import SystemClock
from annotations.instants import shifted
from annotations.labels import Labelling
from loaders.commands.options import grouped, is_web_url, time_zone
from loaders.commands.publishing import labels_for, publishing, stopped_by_signals
from loaders.dynamic import LabelledFacts
from loaders.errors import InputError, SettingError
from loaders.progress import shown_on
from loaders.replay import ReplaySettings, replay_line
from loaders.replay import replay as play
from loaders.sources.base import Feed
from loaders.sources.flights import Flights
from loaders.sources.gtfs import DEFAULT_BASE, Gtfs
from loaders.sources.irail import Irail
from loaders.sources.polling import MessageFormat, RecordedMessages
from loaders.sources.siri import SIRI_BASE, Siri
from loaders.sources.taxi import Taxi


@dataclass(frozen=True, slots=True)
class Replay:
    """The options of all replays."""

    speed: float = 1.0
    start: datetime | None = None
    until: datetime | None = None
    token: str | None = None
    token_file: Path | None = None
    label: Labelling = "expiration"
    state: Path | None = None
    original: bool = False
    lead: float = 0.2
    quiet: bool = False
    clock: str | None = None
    zone: str = "UTC"

    def recorded(
        self, make: Callable[[], MessageFormat], path: str, url: str, period: float
    ) -> None:
        """Play recorded messages to the dataset at a URL."""
        if is_web_url(path):
            raise SettingError(f"{path} is no recording: tpf-load polls it, with --push")
        self.run(lambda: RecordedMessages(path, make(), timedelta(seconds=period)), url)

    def run(self, make_feed: Callable[[], Feed], url: str) -> None:
        settings = ReplaySettings(
            self.speed, self.start, self.until, labels_for(url, self.label), self.original,
            timedelta(seconds=self.lead), self.state, self.clock, time_zone(self.zone),
        )  # fmt: skip
        clock = SystemClock()
        with publishing(url, clock, self.token, self.token_file) as publisher:
            feed = make_feed()
            with (
                stopped_by_signals() as stopped,
                shown_on(Console(stderr=True), self.quiet) as report,
            ):
                span = feed.span(self.start, self.until)
                if span is None and self.start is self.until is None:
                    raise InputError("the recording is empty")
                if span is None:
                    raise SettingError("the recording has nothing between --from and --until")
                report.stage(f"replaying {feed.name}", span.polls)
                summary = play(feed, publisher, clock, settings, stopped, report)
        if not self.quiet:
            typer.echo(replay_line(summary), err=True)


@grouped
def irail(liveboards: str, url: str, replay: Replay) -> None:
    """Recorded liveboards of the Belgian railway API: delay, platform and status."""
    replay.run(lambda: Irail(liveboards), url)


@grouped
def flights(
    arguments: list[str],
    replay: Replay,
    period: float = 60.0,
) -> None:
    """Departures from New York in 2013: delay, place of departure and status."""
    if len(arguments) > 2:
        raise typer.BadParameter("give the URL, and before it at most one INPUT")
    directory = arguments[0] if len(arguments) == 2 else None
    # A departure is on the board up to a day after its scheduled time.
    first = replay.start and shifted(replay.start, timedelta(days=-2))
    last = replay.until and shifted(replay.until, timedelta(days=1))
    replay.run(lambda: Flights(directory, first, last, timedelta(seconds=period)), arguments[-1])


@grouped
def citybench(path: str, url: str, replay: Replay, period: float | None = None) -> None:
    """CityBench: the latest observation of every sensor of Aarhus."""
    from loaders.sources.citybench import CityBench  # only it loads pyarrow

    pace = None if period is None else timedelta(seconds=period)
    replay.run(lambda: CityBench(path, replay.start, period=pace), url)


@grouped
def taxi(
    path: str,
    url: str,
    replay: Replay,
    hold: float = 1800.0,
) -> None:
    """Taxi trips of the DEBS Grand Challenge 2015, published when they end."""
    replay.run(lambda: Taxi(path, holds=timedelta(seconds=hold)), url)


@grouped
def gtfs_rt(
    path: str,
    url: str,
    schedule: str,
    replay: Replay,
    base: str = DEFAULT_BASE,
    period: float = 30.0,
) -> None:
    """Recorded GTFS Realtime messages: delays, vehicles, alerts."""
    from loaders.sources.gtfs_rt import Realtime

    replay.recorded(lambda: Realtime(Gtfs(schedule, base=base)), path, url, period)


@grouped
def siri(
    path: str,
    url: str,
    replay: Replay,
    base: str = SIRI_BASE,
    period: float = 30.0,
) -> None:
    """Recorded SIRI messages: estimated timetables and vehicles."""
    replay.recorded(lambda: Siri(base), path, url, period)


@grouped
def facts(path: str, url: str, replay: Replay) -> None:
    """Recorded facts with intervals: a file, or a folder of parts, of tpf-load --facts."""
    replay.run(lambda: LabelledFacts(path), url)


app = typer.Typer(
    name="tpf-replay", add_completion=False, rich_markup_mode=None, no_args_is_help=True,
    help="Play a recorded feed to a server, in real time or faster.",
)  # fmt: skip
for _command in (irail, flights, gtfs_rt, siri, citybench, taxi, facts):
    app.command(_command.__name__.replace("_", "-"))(_command)
