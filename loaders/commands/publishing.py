"""What the commands share that send facts to a server."""

import enum
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from annotations.clock import Clock
from annotations.labels import Labelling
from loaders.commands.options import is_url
from loaders.publisher import Sender, is_stream, sender_to


class LabelOption(enum.StrEnum):
    """The kind of label that is published."""

    EXPIRATION = "expiration"
    INTERVAL = "interval"

    @property
    def labelling(self) -> Labelling:
        """The same as the kernel names it."""
        return "expiration" if self is LabelOption.EXPIRATION else "interval"

    def for_url(self, url: str) -> Labelling:
        """The kind to publish with: elements of a stream need the instant of their beginning."""
        return "interval" if is_stream(url) else self.labelling


Url = Annotated[
    str, typer.Argument(metavar="URL", help="The URL of the dataset, or …/streams/NAME.")
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="TPF_PUBLISH_TOKEN", help="The server's publishing token."),
]
Label = Annotated[LabelOption, typer.Option("--label", help="What the labels state.")]


@contextmanager
def publishing(url: str, clock: Clock, token: str | None) -> Iterator[Sender]:
    """A sender to the dataset or the stream that is given on the command line."""
    publisher = sender_to(dataset_url(url), clock, token)
    try:
        yield publisher
    finally:
        publisher.close()


def dataset_url(url: str) -> str:
    """The URL of a dataset that is given on the command line."""
    if not is_url(url):
        raise typer.BadParameter(f"not the URL of a dataset: {url!r}")
    return url


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or termination sets; the second one is no longer caught."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the form of handlers
        stopped.set()
        signal.signal(number, before[number])

    before = {int(n): signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
