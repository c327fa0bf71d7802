"""What the commands share that ask a URL again and again, and tell a server."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import Annotated, NamedTuple

import requests
import typer

from annotations.clock import Clock, SystemClock
from loaders.commands.dynamic_outputs import DynamicOutputs
from loaders.commands.options import InputSpan, is_url
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
from loaders.sources.polling import Poller, Read

ACCEPT = "application/ld+json, application/json;q=0.9, */*;q=0.1"


@dataclass(frozen=True, slots=True)
class Push:
    """The server that is told, and how; and how often a URL is asked."""

    push: Annotated[
        str | None,
        typer.Option(
            "--push", metavar="URL", help="Publish to the dataset, or the stream, at this URL."
        ),
    ] = None
    token: Token = None
    token_file: TokenFile = None
    label: Label = LabelOption.EXPIRATION
    polls: Annotated[
        int | None,
        typer.Option("--polls", min=1, metavar="N", help="End after N polls of a URL."),
    ] = None


class Asking(NamedTuple):
    """How a URL is asked."""

    clock: Clock
    session: requests.Session
    stopped: Event
    polls: int | None

    def poll(self, name: str, url: str, read: Read, period: float) -> Poller:
        """The feed at a URL; a poll that fails is told to the user."""
        return Poller(
            name, url, read, self.clock, timedelta(seconds=period), self.session, self.stopped,
            failed=_failed, polls=self.polls,
        )  # fmt: skip


def tell(
    make_feed: Callable[[Asking], Feed],
    path: str,
    dynamic: DynamicOutputs,
    server: Push,
    span: InputSpan,
    quiet: bool,
) -> None:
    """Write what a feed says, or publish it as it is told.

    Args:
        make_feed: makes it, to be read once.
        path: where it comes from.
        dynamic: the files to write.
        server: the server to tell.
        span: the part that is wanted.
        quiet: say nothing of what was done.
    """
    outputs = dynamic.wanted + (server.push is not None)
    if not outputs:
        raise typer.BadParameter("say what to write: --facts, --streams or --push")
    if is_url(path) and outputs > 1:
        raise typer.BadParameter("a URL is polled for one output: --facts, --streams or --push")
    with ExitStack() as stack:
        stopped = stack.enter_context(stopped_by_signals())
        session = stack.enter_context(requests.Session())
        session.headers["Accept"] = ACCEPT
        asking = Asking(SystemClock(), session, stopped, server.polls)
        dynamic.write(lambda: make_feed(asking), span, quiet)
        if server.push is not None:
            _publish(make_feed(asking), server, span, asking, quiet)


def _publish(feed: Feed, server: Push, span: InputSpan, asking: Asking, quiet: bool) -> None:
    assert server.push is not None
    # What a feed says now holds now: nothing is waited for, and no label is moved.
    settings = ReplaySettings(
        float("inf"),
        span.start,
        span.until,
        server.label.for_url(server.push),
        original_instants=True,
    )
    with publishing(server.push, asking.clock, server.token, server.token_file) as publisher:
        summary = play(feed, publisher, asking.clock, settings, asking.stopped)
    if not quiet:
        typer.echo(describe(summary), err=True)


def _failed(reason: str) -> None:
    typer.echo(f"tpf-load: a poll failed: {reason}", err=True)
