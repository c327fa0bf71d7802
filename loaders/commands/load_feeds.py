"""``tpf-load gtfs-rt``, ``siri``, ``gbfs``, ``json``, ``ngsi-ld``: feeds to files or a server."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import NamedTuple

import requests
import typer

from annotations.clock import Clock, SystemClock
from annotations.labels import Labelling
from annotations.wording import user_agent
from loaders.commands.dynamic_outputs import DynamicOutputs
from loaders.commands.options import InputSpan, LoadWork, grouped, is_listener, is_web_url, warn
from loaders.commands.publishing import given_token, labels_for, publishing, stopped_by_signals
from loaders.places import input_place
from loaders.replay import ReplaySettings, replay_line
from loaders.replay import replay as play
from loaders.sources.base import Feed
from loaders.sources.gbfs import GBFS_BASE, Gbfs
from loaders.sources.gtfs import DEFAULT_BASE, Gtfs
from loaders.sources.listening import Listener
from loaders.sources.ngsi_ld import NgsiLd, reader_of_json
from loaders.sources.polling import (
    Lasting,
    LiveFeed,
    MessageFormat,
    Poller,
    Read,
    RecordedMessages,
)
from loaders.sources.siri import SIRI_BASE, Siri

_ACCEPT = "application/ld+json, application/json;q=0.9, */*;q=0.1"


@dataclass(frozen=True, slots=True)
class Push:
    """The server to publish to, and how often to poll a URL."""

    push: str | None = None
    token: str | None = None
    token_file: Path | None = None
    label: Labelling = "expiration"
    polls: int | None = None


class Asking(NamedTuple):
    """The options of polled and received feeds."""

    clock: Clock
    session: requests.Session
    stopped: Event
    polls: int | None

    def _live(self) -> LiveFeed:
        return LiveFeed(self.clock, self.stopped, warn, self.polls)

    def poll(
        self, name: str, url: str, read: Read, period: float | Lasting, paged: bool = False
    ) -> Poller:
        pause = period if callable(period) else timedelta(seconds=period)
        return Poller(name, url, read, pause, self.session, self._live(), paged)

    def messages(
        self, messages: MessageFormat, path: str, period: float | Lasting, paged: bool = False
    ) -> Feed:
        """Return the feed at a URL, or of recorded messages."""
        if is_web_url(path):
            return self.poll(messages.name, path, messages.read, period, paged)
        if callable(period):
            return RecordedMessages(path, messages)
        return RecordedMessages(path, messages, timedelta(seconds=period))

    def listen(
        self, messages: MessageFormat, url: str, holds: timedelta, token: str | None, quiet: bool
    ) -> Feed:
        """Return the feed of documents that are posted here."""

        def ready(address: str) -> None:
            if not quiet:
                warn(f"listening at {address}")

        return Listener(messages.name, url, messages.read, holds, token, self._live(), ready)


def write_or_publish(
    make_feed: Callable[[Asking], Feed],
    path: str,
    dynamic: DynamicOutputs,
    server: Push,
    span: InputSpan,
    work: LoadWork,
) -> None:
    """Write a feed to files, or publish it as it arrives."""
    outputs = dynamic.requested + (server.push is not None)
    if not outputs:
        raise typer.BadParameter("say what to write: --facts, --streams, --history or --push")
    if outputs > 1 and (is_web_url(path) or is_listener(path)):
        done = "polled" if is_web_url(path) else "listened at"
        raise typer.BadParameter(f"a URL is {done} for one output only")
    with ExitStack() as stack:
        stopped = stack.enter_context(stopped_by_signals())
        session = stack.enter_context(requests.Session())
        session.headers.update({"Accept": _ACCEPT, "User-Agent": user_agent("tpf-load")})
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
        labels_for(server.push, server.label),
        original_instants=True,
    )
    with publishing(server.push, asking.clock, server.token, server.token_file) as publisher:
        summary = play(feed, publisher, asking.clock, settings, asking.stopped)
    if not quiet:
        typer.echo(replay_line(summary), err=True)


@dataclass(frozen=True, slots=True)
class Polled:
    """The names of a feed's things, and the period of polls."""

    base: str = DEFAULT_BASE
    period: float = 30.0
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Notified:
    """The names of entities, and their polls and notifications."""

    context: str | None = None
    period: float = 30.0
    holds: float = 300.0
    receiver_token: str | None = None


@grouped
def gtfs_rt(
    path: str,
    schedule: str,
    span: InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    work: LoadWork,
    polled: Polled,
) -> None:
    """GTFS Realtime: delays, vehicles, alerts; files, or a URL that is polled."""

    def make_feed(asking: Asking) -> Feed:
        from loaders.sources.gtfs_rt import Realtime

        messages = Realtime(Gtfs(schedule, base=polled.base), polled.language)
        return asking.messages(messages, path, polled.period)

    write_or_publish(make_feed, path, dynamic, server, span, work)


@grouped
def json(
    url: str,
    span: InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    context: str | None = None,
    period: float = 30.0,
    quiet: bool = False,
) -> None:
    """JSON or JSON-LD at a URL that is polled: each answer holds until the next one."""
    if not is_web_url(url):
        raise typer.BadParameter(f"not a URL that can be polled: {url!r}")
    read = reader_of_json(None if context is None else input_place(context))
    work = LoadWork(quiet=quiet)
    write_or_publish(
        lambda asking: asking.poll("json", url, read, period), url, dynamic, server, span, work
    )


@grouped
def siri(
    path: str,
    span: InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    work: LoadWork,
    base: str = SIRI_BASE,
    period: float = 30.0,
) -> None:
    """SIRI ET and VM: delays, platforms, vehicles; files, or a URL that is polled."""
    write_or_publish(
        lambda asking: asking.messages(Siri(base), path, period),
        path, dynamic, server, span, work,
    )  # fmt: skip


@grouped
def gbfs(
    path: str,
    span: InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    work: LoadWork,
    base: str = GBFS_BASE,
) -> None:
    """GBFS: shared bicycles and their stations; files, or a URL that is polled as it says."""
    documents = Gbfs(base)
    write_or_publish(
        lambda asking: asking.messages(documents, path, documents.lasting),
        path, dynamic, server, span, work,
    )  # fmt: skip


@grouped
def ngsi_ld(
    path: str,
    span: InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    work: LoadWork,
    notified: Notified,
) -> None:
    """NGSI-LD entities: polled page by page, or as a broker notifies of them."""

    def make_feed(asking: Asking) -> Feed:
        context = notified.context
        entities = NgsiLd(None if context is None else input_place(context))
        if is_listener(path):
            holds = timedelta(seconds=notified.holds)
            token = given_token(notified.receiver_token, None)
            return asking.listen(entities, path, holds, token, work.quiet)
        return asking.messages(entities, path, notified.period, paged=True)

    write_or_publish(make_feed, path, dynamic, server, span, work)
