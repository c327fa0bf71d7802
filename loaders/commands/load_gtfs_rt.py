"""``tpf-load gtfs-rt``: GTFS Realtime messages to files, or to a server as they are told."""

from datetime import timedelta

from loaders.commands import options
from loaders.commands.dynamic_outputs import DynamicOutputs
from loaders.commands.groups import grouped
from loaders.commands.polling import Asking, Push, tell
from loaders.sources.base import Feed
from loaders.sources.gtfs import Gtfs


@grouped
def gtfs_rt(
    path: options.Messages,
    schedule: options.Schedule,
    span: options.InputSpan,
    dynamic: DynamicOutputs,
    server: Push,
    base: options.Base = options.DEFAULT_BASE,
    period: options.Period = 30.0,
    quiet: options.Quiet = False,
) -> None:
    """GTFS Realtime: delay, platform, status, vehicles; files, or a URL that is polled."""

    def make_feed(asking: Asking) -> Feed:
        from loaders.sources.gtfs_rt_feeds import GtfsRecording, reader_of_messages

        timetable = Gtfs(schedule, base=base)
        if not options.is_url(path):
            return GtfsRecording(path, timetable, timedelta(seconds=period))
        return asking.poll("gtfs-rt", path, reader_of_messages(timetable), period)

    tell(make_feed, path, dynamic, server, span, quiet)
