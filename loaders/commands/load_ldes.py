"""``tpf-load ldes``: a Linked Data Event Stream, to a file or followed into a dataset."""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import requests
import typer

from annotations.clock import SystemClock
from annotations.labels import Expiration, Fact, Interval
from annotations.methods import method_named
from annotations.methods.base import Naming
from annotations.terms import Quad
from annotations.wording import counted
from loaders.commands import options
from loaders.commands.dynamic_outputs import DatasetUrl, Facts
from loaders.commands.publishing import (
    TokenFile,
    TokenOption,
    dataset_url,
    given_token,
    stopped_by_signals,
)
from loaders.dynamic import naming_of, write_labelled
from loaders.errors import InputError
from loaders.outputs import line_of, put_where_wanted
from loaders.publisher import FilePublisher, is_stream
from loaders.sources.ldes import LdesFollower, LdesState, MemberChanges

# What an event stream says, as a patch for a server, or as the facts that it comes to.


def patches_of(
    changes: MemberChanges, naming: Naming, now: datetime, *, past: bool
) -> Iterator[bytes]:
    """RDF Patches of annotated facts, in order.

    Intervals and expirations each have one: within a document, a fact cannot have both. An
    expiration that goes does so before its fact comes with an interval, or would take that along.

    Args:
        changes: what comes and goes.
        naming: names the annotations.
        now: what has expired by then is left out.
        past: whether intervals that have ended are of interest.
    """
    method = method_named("reification")
    # What goes and what comes may be versions of one fact, with one name.
    of_gone = replace(naming, fact_base=f"{naming.fact_base}gone/")
    ending = {fact.quad for fact in changes.gone if isinstance(fact.label, Expiration)}
    steps: list[tuple[type[Interval] | type[Expiration], str]] = [
        (Interval, "DA"), (Expiration, "DA"),
    ]  # fmt: skip
    if any(isinstance(each.label, Interval) and each.quad in ending for each in changes.said):
        steps = [(Expiration, "D"), (Interval, "DA"), (Expiration, "A")]
    for kind, signs in steps:
        lines = [
            f"{sign} {line_of(quad)}\n"
            for sign, facts, names in (("D", changes.gone, of_gone), ("A", changes.said, naming))
            if sign in signs
            for fact in facts
            if isinstance(fact.label, kind)
            and (fact.label.end > now or (past and kind is Interval))
            for quad in method.encode(fact, names)
        ]
        if lines:
            yield "".join(lines).encode()


def held(follower: LdesFollower) -> Iterator[Fact]:
    """The facts that all members come to, each with its label."""
    found: dict[Quad, dict[datetime | None, Fact]] = {}
    for changes, taken in follower.changes():
        for fact in changes.gone:
            _cut(found.get(fact.quad, {}), fact)
        for fact in changes.said:
            assert fact.label is not None
            found.setdefault(fact.quad, {})[fact.label.start] = fact
        taken()
    return _all(found.values())


def _all(found: Iterable[dict[datetime | None, Fact]]) -> Iterator[Fact]:
    for facts in found:
        yield from facts.values()


def _cut(facts: dict[datetime | None, Fact], gone: Fact) -> None:
    if isinstance(gone.label, Expiration):
        facts.pop(None, None)
        return
    assert gone.label is not None
    for start, fact in list(facts.items()):
        if start is None or fact.label is None or fact.label.end <= gone.label.start:
            continue
        if start < gone.label.start:
            facts[start] = Fact(fact.quad, Interval(start, gone.label.start))
        elif start < gone.label.end:
            del facts[start]


def ldes(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="URL of the stream, or of its first node.")
    ],
    facts: Facts = None,
    dataset: DatasetUrl = None,
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="URL", help="Publish to the dataset at this URL."),
    ] = None,
    token: TokenOption = None,
    token_file: TokenFile = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Remember what was read and published, to go on later."),
    ] = None,
    period: options.Period = 30.0,
    polls: Annotated[
        int | None, typer.Option("--polls", min=1, metavar="N", help="End after N looks.")
    ] = None,
    allow_link: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="An origin that nodes may lie at; can be repeated."),
    ] = None,
    past: Annotated[
        bool,
        typer.Option("--past", help="Publish intervals that have ended, too (accept_past)."),
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """A Linked Data Event Stream: what it says, followed into a dataset; or as it is now."""
    for each in (url, *(allow_link or ())):
        if not options.is_web_url(each):
            raise typer.BadParameter(f"not a URL that can be followed: {each!r}")
    if (facts is None) == (push is None):
        raise typer.BadParameter("say where to: --facts or --push")
    if push is not None and is_stream(dataset_url(push)):
        raise typer.BadParameter("a stream takes no facts that end: give a dataset")
    if facts is not None and state is not None:
        raise typer.BadParameter("a file is written from the beginning: --state is for --push")
    clock = SystemClock()
    with ExitStack() as stack:
        stopped = stack.enter_context(stopped_by_signals())
        session = stack.enter_context(requests.Session())
        memory = LdesState(state or ":memory:", f"{url} to {push or facts}")
        stack.callback(memory.close)
        follower = LdesFollower(url, memory, session, clock, allow_link or (), _failed)
        if facts is not None:
            follower.look()
            naming = naming_of(dataset or url)
            with put_where_wanted(facts) as file:
                count = write_labelled(held(follower), file, method_named("named-graph"), naming)
            if not quiet:
                typer.echo(f"{counted(count, 'fact')} in {facts}", err=True)
            return
        assert push is not None
        sender = FilePublisher(
            push, clock, given_token(token, token_file), "application/rdf-patch", withdraw=False
        )
        stack.callback(sender.close)
        run = memory.setting("run", secrets.token_hex(8))
        done = read = looks = 0
        while not stopped.is_set():
            began, looks = clock.now(), looks + 1
            try:
                read += follower.look()
            except InputError as error:
                if polls is not None and looks == polls and not read:
                    raise
                _failed(str(error))
            for changes, taken in follower.changes():
                for body in patches_of(changes, naming_of(push), clock.now(), past=past):
                    digest = blake2b(body, key=run.encode(), digest_size=16).hexdigest()
                    sender.publish_body(body, None, f"ldes-{digest}", stopped)
                taken()
                done += changes.members
                if stopped.is_set():
                    break
            if looks == polls or not clock.wait_until(began + timedelta(seconds=period), stopped):
                break
    if not quiet:
        typer.echo(f"{counted(done, 'member')} published to {push}", err=True)


def _failed(reason: str) -> None:
    typer.echo(f"tpf-load: not read: {reason}", err=True)
