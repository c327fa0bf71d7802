"""``tpf-load ldes``: a Linked Data Event Stream, to a file or followed into a dataset."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from threading import Event

import requests
import typer

from annotations.clock import SystemClock
from annotations.labels import Expiration, Fact, Interval
from annotations.methods import method_named
from annotations.methods.base import Naming
from annotations.terms import Quad
from annotations.wording import counted, user_agent
from loaders.commands.options import grouped, is_web_url, warn
from loaders.commands.publishing import dataset_url, given_token, stopped_by_signals
from loaders.dynamic import naming_of, write_labelled
from loaders.errors import (
    InputError,
    PublishRefusedError,
    ServerUnreachableError,
    SettingError,
)
from loaders.outputs import line_of, put_where_wanted
from loaders.publisher import Publisher, is_stream
from loaders.replay import REFUSALS_OF_CONTENT
from loaders.sources.ldes import AT_ONCE, LdesFollower, LdesState, MemberChanges

# What an event stream says, as a patch for a server, or as the facts that it comes to.


def patches_of(
    changes: MemberChanges, naming: Naming, now: datetime, *, past: bool
) -> Iterator[bytes]:
    """Yield RDF Patches of annotated facts, in order.

    Expirations are removed before their facts are added with intervals, or both would go.
    """
    method = method_named("reification")
    # What goes and what comes may be versions of one fact, with one name.
    of_removed = replace(naming, fact_base=f"{naming.fact_base}gone/")
    ending = {fact.quad for fact in changes.removed if isinstance(fact.label, Expiration)}
    steps: list[tuple[type[Interval] | type[Expiration], str]] = [
        (Interval, "DA"), (Expiration, "DA"),
    ]  # fmt: skip
    if any(isinstance(each.label, Interval) and each.quad in ending for each in changes.added):
        steps = [(Expiration, "D"), (Interval, "DA"), (Expiration, "A")]
    for kind, signs in steps:
        lines = [
            f"{sign} {line_of(quad)}\n"
            for sign, facts, names in (
                ("D", changes.removed, of_removed),
                ("A", changes.added, naming),
            )
            if sign in signs
            for fact in facts
            if isinstance(fact.label, kind)
            and (fact.label.end > now or (past and kind is Interval))
            for quad in method.encode(fact, names)
        ]
        if lines:
            yield "".join(lines).encode()


def held(follower: LdesFollower) -> Iterator[Fact]:
    """Return the labelled facts that result from all members."""
    results: dict[Quad, dict[datetime | None, Fact]] = {}
    for changes, taken in follower.changes():
        for fact in changes.removed:
            _cut(results.get(fact.quad, {}), fact)
        for fact in changes.added:
            assert fact.label is not None
            results.setdefault(fact.quad, {})[fact.label.start] = fact
        taken()
    return (fact for facts in results.values() for fact in facts.values())


def _cut(facts: dict[datetime | None, Fact], ended: Fact) -> None:
    if isinstance(ended.label, Expiration):
        facts.pop(None, None)
        return
    assert ended.label is not None
    for start, fact in list(facts.items()):
        if start is None or fact.label is None or fact.label.end <= ended.label.start:
            continue
        if start < ended.label.start:
            facts[start] = Fact(fact.quad, Interval(start, ended.label.start))
        elif start < ended.label.end:
            del facts[start]


@dataclass(frozen=True, slots=True)
class Following:
    """An event stream, its target, and how to follow it."""

    url: str
    facts: str | None = None
    dataset: str | None = None
    push: str | None = None
    token: str | None = None
    token_file: Path | None = None
    state: Path | None = None
    period: float = 30.0
    polls: int | None = None
    allow_link: list[str] | None = None
    past: bool = False
    quiet: bool = False


@grouped
def ldes(given: Following) -> None:
    """Follow a Linked Data Event Stream into a dataset, or write its present facts to a file."""
    for each in (given.url, *(given.allow_link or ())):
        if not is_web_url(each):
            raise typer.BadParameter(f"not a URL that can be followed: {each!r}")
    if (given.facts is None) == (given.push is None):
        raise typer.BadParameter("say where to: --facts or --push")
    if given.push is not None and is_stream(dataset_url(given.push)):
        raise typer.BadParameter("a stream takes no facts that end: give a dataset")
    if given.facts is not None and given.state is not None:
        raise typer.BadParameter("a file is written from the beginning: --state is for --push")
    if given.period <= 0:
        raise SettingError("the period of a feed must be positive")
    clock = SystemClock()
    with ExitStack() as stack:
        stopped = stack.enter_context(stopped_by_signals())
        session = stack.enter_context(requests.Session())
        session.headers["User-Agent"] = user_agent("tpf-load")
        memory = LdesState(given.state or ":memory:", f"{given.url} to {given.push or given.facts}")
        stack.callback(memory.close)
        follower = LdesFollower(
            given.url, memory, session, clock, given.allow_link or (),
            lambda reason: warn(f"not read: {reason}"),
        )  # fmt: skip
        if given.facts is not None:
            follower.look()
            naming = naming_of(given.dataset or given.url)
            with put_where_wanted(given.facts) as file:
                count = write_labelled(held(follower), file, method_named("named-graph"), naming)
            if not given.quiet:
                typer.echo(f"{counted(count, 'fact')} in {given.facts}", err=True)
            return
        assert given.push is not None
        token = given_token(given.token, given.token_file)
        sender = Publisher(given.push, clock, token, media_type="application/rdf-patch")
        stack.callback(sender.close)
        run = memory.setting("run", secrets.token_hex(8))

        def send(changes: MemberChanges) -> None:
            naming = naming_of(sender.url)
            for body in patches_of(changes, naming, clock.now(), past=given.past):
                # What went may come again, as it was.
                named = " ".join(changes.members).encode() + body
                digest = blake2b(named, key=run.encode(), digest_size=16).hexdigest()
                sender.publish_body(body, None, f"ldes-{digest}", stopped)

        done = read = looks = 0
        while not stopped.is_set():
            began, looks = clock.now(), looks + 1
            try:
                read += follower.look()
            except InputError as error:
                if given.polls is not None and looks == given.polls and not read:
                    raise
                warn(f"not read: {error}")
            done += _published(follower, send, stopped)
            following = max(began + timedelta(seconds=given.period), follower.resume)
            if looks == given.polls or not clock.wait_until(following, stopped):
                break
    if not given.quiet:
        typer.echo(f"{counted(done, 'member')} published to {given.push}", err=True)


def _published(
    follower: LdesFollower, send: Callable[[MemberChanges], None], stopped: Event
) -> int:
    """Publish what waits; return the number of members. Whose content is refused is left out."""
    done = alone = 0
    while True:
        for changes, taken in follower.changes(1 if alone else AT_ONCE):
            if stopped.is_set():
                return done
            count = len(changes.members)
            try:
                send(changes)
            except PublishRefusedError as error:
                if error.status not in REFUSALS_OF_CONTENT:
                    raise
                if not alone:
                    alone = count  # whose it is shows one instant at a time
                    break
                names = " ".join(changes.members)[:200]
                warn(f"not published: {names}: {error}")
                taken(refused=True)
            except ServerUnreachableError:
                if stopped.is_set():
                    return done
                raise
            else:
                taken()
                done += count
            if alone:
                alone = max(alone - count, 0)
                break
        else:
            return done
