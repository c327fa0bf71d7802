"""What the commands share that send facts to a server."""

import enum
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from annotations.clock import Clock
from annotations.labels import Labelling
from loaders.commands.options import is_web_url
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
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="TPF_PUBLISH_TOKEN", help="The server's publishing token."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        envvar="TPF_PUBLISH_TOKEN_FILE",
        help="File with the token, for --token.",
    ),
]
LabelFlag = Annotated[LabelOption, typer.Option("--label", help="What the labels state.")]


def given_token(token: str | None, file: Path | None) -> str | None:
    """The token that is given, or that a file holds."""
    if file is None:
        return token
    if token is not None:
        raise typer.BadParameter("give --token or --token-file, not both")
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"{file}: {reason}", param_hint="--token-file") from error


@contextmanager
def publishing(
    url: str, clock: Clock, token: str | None, token_file: Path | None
) -> Iterator[Sender]:
    """A sender to the dataset or the stream that is given on the command line."""
    publisher = sender_to(dataset_url(url), clock, given_token(token, token_file))
    try:
        yield publisher
    finally:
        publisher.close()


def dataset_url(url: str) -> str:
    """The URL of a dataset that is given on the command line."""
    if not is_web_url(url):
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
