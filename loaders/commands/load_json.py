"""``tpf-load json``: a JSON document at a URL, polled."""

from typing import Annotated

import typer

from loaders.commands import options
from loaders.commands.dynamic_outputs import DynamicOutputs
from loaders.commands.groups import grouped
from loaders.commands.polling import Push, tell
from loaders.places import input_place
from loaders.sources.json_documents import reader_of_json


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
