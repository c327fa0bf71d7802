"""``tpf-load ngsi-ld``: entities of a context broker, polled or as they are notified."""

from datetime import timedelta
from typing import Annotated

import typer

from annotations.seconds import seconds_from
from loaders.commands import options
from loaders.commands.dynamic_outputs import DynamicOutputs
from loaders.commands.groups import grouped
from loaders.commands.polling import Asking, Push, tell
from loaders.places import input_place
from loaders.sources.base import Feed
from loaders.sources.ngsi_ld import NgsiLd


@grouped
def ngsi_ld(
    path: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="URL of entities to poll, listen://HOST:PORT for notifications, or recorded ones: "
            "a file, or a directory of .json files.",
        ),
    ],
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    work: options.LoadWork,
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="FILE", help="JSON-LD context of the entities."),
    ] = None,
    period: options.Period = 30.0,
    holds: Annotated[
        float,
        typer.Option(
            "--holds", parser=seconds_from(0), metavar="S",
            help="Seconds that a notification holds here.",
        ),
    ] = 300.0,
    receiver_token: Annotated[
        str | None,
        typer.Option(
            "--receiver-token", envvar="TPF_RECEIVER_TOKEN",
            help="Bearer token that the broker sends (receiverInfo of the subscription).",
        ),
    ] = None,
) -> None:  # fmt: skip
    """NGSI-LD entities: polled page by page, or as a broker notifies of them."""

    def make_feed(asking: Asking) -> Feed:
        entities = NgsiLd(None if context is None else input_place(context))
        if options.is_listener(path):
            return asking.listen(
                entities, path, timedelta(seconds=holds), receiver_token, work.quiet
            )
        return asking.messages(entities, path, period, paged=True)

    tell(make_feed, path, dynamic, server, span, work)
