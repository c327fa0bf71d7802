"""``tpf-load gtfs-rt``: GTFS Realtime messages to files, or to a server as they are told."""

from typing import Annotated

import typer

from loaders.commands import options
from loaders.commands.dynamic_outputs import DynamicOutputs
from loaders.commands.groups import grouped
from loaders.commands.polling import Asking, Push, tell
from loaders.sources.base import Feed
from loaders.sources.gtfs import Gtfs


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
