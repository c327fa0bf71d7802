"""``tpf-load ngsi-ld``: entities of a context broker, polled or as they are notified."""

from datetime import timedelta
from typing import Annotated

import typer

from annotations.seconds import seconds_from
from loaders.commands import options
from loaders.commands.dynamic_outputs import DynamicOutputs
from loaders.commands.options import grouped
from loaders.commands.polling import Asking, Push, tell
from loaders.places import input_place
from loaders.sources.base import Feed
from loaders.sources.gtfs import Gtfs
from loaders.sources.ngsi_ld import NgsiLd, reader_of_json
from loaders.sources.siri import SIRI_BASE, Siri

# ``tpf-load gtfs-rt``: GTFS Realtime messages to files, or to a server as they are told.


@grouped
def gtfs_rt(
    path: options.Messages,
    schedule: options.ScheduleOption,
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    work: options.LoadWork,
    base: options.Base = options.DEFAULT_BASE,
    period: options.Period = 30.0,
    language: Annotated[
        str | None, typer.Option("--language", metavar="TAG", help="In which alerts are told.")
    ] = None,
) -> None:
    """GTFS Realtime: delays, vehicles, alerts; files, or a URL that is polled."""

    def make_feed(asking: Asking) -> Feed:
        from loaders.sources.gtfs_rt import Realtime

        return asking.messages(Realtime(Gtfs(schedule, base=base), language), path, period)

    tell(make_feed, path, dynamic, server, span, work)


# ``tpf-load json``: a JSON document at a URL, polled.


@grouped
def json(
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of JSON or JSON-LD.")],
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="FILE", help="JSON-LD context for JSON that has none."),
    ] = None,
    period: options.Period = 30.0,
    quiet: options.Quiet = False,
) -> None:
    """Whatever a URL says in JSON: each answer holds until the next one."""
    if not options.is_web_url(url):
        raise typer.BadParameter(f"not a URL that can be polled: {url!r}")
    read = reader_of_json(None if context is None else input_place(context))
    work = options.LoadWork(quiet=quiet)
    tell(lambda asking: asking.poll("json", url, read, period), url, dynamic, server, span, work)


# ``tpf-load siri``: SIRI messages to files, or to a server as they are told.


@grouped
def siri(
    path: options.SiriMessages,
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    work: options.LoadWork,
    base: options.SiriBase = SIRI_BASE,
    period: options.Period = 30.0,
) -> None:
    """SIRI ET and VM: delays, platforms, vehicles; files, or a URL that is polled."""
    tell(
        lambda asking: asking.messages(Siri(base), path, period),
        path, dynamic, server, span, work,
    )  # fmt: skip


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
