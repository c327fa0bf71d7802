"""``tpf-load siri``: SIRI messages to files, or to a server as they are told."""

from loaders.commands import options
from loaders.commands.dynamic_outputs import DynamicOutputs
from loaders.commands.groups import grouped
from loaders.commands.polling import Push, tell
from loaders.sources.siri import SIRI_BASE, Siri


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
