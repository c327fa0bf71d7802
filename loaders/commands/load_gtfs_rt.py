"""``tpf-load gtfs-rt``: GTFS Realtime messages to files, or to a server as they are told."""

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import Annotated

import requests
import typer

from annotations.clock import SystemClock
from loaders.commands import options
from loaders.commands.dynamic_outputs import DynamicOutputs
from loaders.commands.groups import grouped
from loaders.commands.publishing import (
    Label,
    LabelOption,
    Token,
    TokenFile,
    publishing,
    stopped_by_signals,
)
from loaders.replay import ReplaySettings, describe
from loaders.replay import replay as play
from loaders.sources.base import Feed
from loaders.sources.gtfs import Gtfs


@dataclass(frozen=True, slots=True)
class Push:
    """The server that is told, and how."""

    push: Annotated[
        str | None,
        typer.Option(
            "--push", metavar="URL", help="Publish to the dataset, or the stream, at this URL."
        ),
    ] = None
    token: Token = None
    token_file: TokenFile = None
    label: Label = LabelOption.EXPIRATION


@grouped
def gtfs_rt(
    path: options.Messages,
    schedule: options.Schedule,
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    base: options.Base = options.DEFAULT_BASE,
    period: options.Period = 30.0,
    polls: Annotated[
        int | None,
        typer.Option("--polls", min=1, metavar="N", help="End after N polls of a URL."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """GTFS Realtime: delay, platform, status, vehicles; files, or a URL that is polled."""
    outputs = dynamic.wanted + (server.push is not None)
    if not outputs:
        raise typer.BadParameter("say what to write: --facts, --streams or --push")
    if options.is_url(path) and outputs > 1:
        raise typer.BadParameter("a URL is polled for one output: --facts, --streams or --push")
    with ExitStack() as stack:
        stopped = stack.enter_context(stopped_by_signals())
        session = stack.enter_context(requests.Session())
        clock = SystemClock()

        def make_feed() -> Feed:
            from loaders.sources.gtfs_rt_feeds import GtfsPoller, GtfsRecording

            timetable = Gtfs(schedule, base=base)
            seconds = timedelta(seconds=period)
            if not options.is_url(path):
                return GtfsRecording(path, timetable, seconds)
            return GtfsPoller(
                path, timetable, clock, seconds, session, stopped, failed=_failed, polls=polls
            )

        dynamic.write(make_feed, span, quiet)
        if server.push is not None:
            _publish(make_feed(), server, span, clock, stopped, quiet)


def _publish(
    feed: Feed,
    server: Push,
    span: options.InputSpan,
    clock: SystemClock,
    stopped: Event,
    quiet: bool,
) -> None:
    assert server.push is not None
    # What a feed says now holds now: nothing is waited for, and no label is moved.
    settings = ReplaySettings(
        float("inf"),
        span.start,
        span.until,
        server.label.for_url(server.push),
        original_instants=True,
    )
    with publishing(server.push, clock, server.token, server.token_file) as publisher:
        summary = play(feed, publisher, clock, settings, stopped)
    if not quiet:
        typer.echo(describe(summary), err=True)


def _failed(reason: str) -> None:
    typer.echo(f"tpf-load: a poll failed: {reason}", err=True)
