"""``tpf-load ldes``: a Linked Data Event Stream, to a file or followed into a dataset."""

import secrets
from contextlib import ExitStack
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import requests
import typer

from annotations.clock import SystemClock
from annotations.methods import method_named
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
from loaders.ldes_facts import held, patches_of
from loaders.outputs import put_where_wanted
from loaders.publisher import FilePublisher, is_stream
from loaders.sources.ldes import LdesFollower
from loaders.sources.ldes_state import LdesState


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
