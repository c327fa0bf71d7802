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
from loaders.commands.options import InputSpan, LoadWork, is_listener, is_web_url
from loaders.commands.publishing import (
    LabelFlag,
    LabelOption,
    TokenFile,
    TokenOption,
    publishing,
    stopped_by_signals,
)
from loaders.replay import ReplaySettings, replay_line
from loaders.replay import replay as play
from loaders.sources.base import Feed
from loaders.sources.listening import Listener
from loaders.sources.polling import MessageFormat, Poller, Read, RecordedMessages

_ACCEPT = "application/ld+json, application/json;q=0.9, */*;q=0.1"


@dataclass(frozen=True, slots=True)
class Push:
    """The server that is told, and how; and how often a URL is asked."""

    push: Annotated[
        str | None,
        typer.Option(
            "--push", metavar="URL", help="Publish to the dataset, or the stream, at this URL."
        ),
    ] = None
    token: TokenOption = None
    token_file: TokenFile = None
    label: LabelFlag = LabelOption.EXPIRATION
    polls: Annotated[
        int | None,
        typer.Option(
            "--polls", min=1, metavar="N", help="End after N polls of a URL, or N documents."
        ),
    ] = None


class Asking(NamedTuple):
    """How a URL is asked."""

    clock: Clock
    session: requests.Session
    stopped: Event
    polls: int | None

    def poll(self, name: str, url: str, read: Read, period: float, paged: bool = False) -> Poller:
        """The feed at a URL; a poll that fails is told to the user."""
        return Poller(
            name, url, read, self.clock, timedelta(seconds=period), self.session, self.stopped,
            failed=_failed, polls=self.polls, paged=paged,
        )  # fmt: skip

    def messages(
        self, messages: MessageFormat, path: str, period: float, paged: bool = False
    ) -> Feed:
        """The feed of a URL that is polled, or of recorded messages."""
        if is_web_url(path):
            return self.poll(messages.name, path, messages.read, period, paged)
        return RecordedMessages(path, messages, timedelta(seconds=period))

    def listen(
        self, messages: MessageFormat, url: str, holds: timedelta, token: str | None, quiet: bool
    ) -> Feed:
        """The feed of what others send here; what is refused is told to the user."""

        def ready(address: str) -> None:
            if not quiet:
                typer.echo(f"tpf-load: listening at {address}", err=True)

        return Listener(
            messages.name, url, messages.read, self.clock, holds, token, self.stopped, ready,
            refused=lambda reason: typer.echo(f"tpf-load: refused: {reason}", err=True),
            documents=self.polls,
        )  # fmt: skip


def tell(
    make_feed: Callable[[Asking], Feed],
    path: str,
    dynamic: DynamicOutputs,
    server: Push,
    span: InputSpan,
    work: LoadWork,
) -> None:
    """Write what a feed says, or publish it as it is told.

    Args:
        make_feed: makes it, to be read once.
        path: where it comes from; what is told now is told for one output.
        dynamic: the files to write.
        server: the server to tell.
        span: the part that is wanted.
        work: what writes files, and whether anything is said of what was done.
    """
    outputs = dynamic.wanted + (server.push is not None)
    if not outputs:
        raise typer.BadParameter("say what to write: --facts, --streams or --push")
    if outputs > 1 and (is_web_url(path) or is_listener(path)):
        done = "polled" if is_web_url(path) else "listened at"
        raise typer.BadParameter(f"a URL is {done} for one output: --facts, --streams or --push")
    with ExitStack() as stack:
        stopped = stack.enter_context(stopped_by_signals())
        session = stack.enter_context(requests.Session())
        session.headers["Accept"] = _ACCEPT
        asking = Asking(SystemClock(), session, stopped, server.polls)
        dynamic.write(lambda: make_feed(asking), span, work)
        if server.push is not None:
            _publish(make_feed(asking), server, span, asking, work.quiet)


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
        typer.echo(replay_line(summary), err=True)


def _failed(reason: str) -> None:
    typer.echo(f"tpf-load: a poll failed: {reason}", err=True)
