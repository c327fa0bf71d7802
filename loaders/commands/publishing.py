"""``tpf-load publish``, and the connection of all commands to a server."""

import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType

import typer

from annotations.clock import Clock, SystemClock
from annotations.errors import AnnotationError
from annotations.labels import Expiration, Interval, Label, Labelling
from annotations.wording import check_token
from loaders.commands.options import MEDIA_TYPES, grouped, is_web_url
from loaders.errors import InputError, SettingError
from loaders.places import content_of, input_place
from loaders.publisher import Publisher, is_stream


def labels_for(url: str, label: Labelling) -> Labelling:
    """Return the labels for a URL; streams need intervals."""
    return "interval" if is_stream(url) else label


def given_token(token: str | None, file: Path | None) -> str | None:
    """Return the token of the options or its file."""
    if file is not None and token is not None:
        raise typer.BadParameter("give --token or --token-file, not both")
    try:
        given = token if file is None else file.read_text(encoding="utf-8").strip()
        check_token(given or "")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"{file or 'the token'}: {reason}") from error
    return given


def publishing(
    url: str, clock: Clock, token: str | None, token_file: Path | None
) -> closing[Publisher]:
    """Open a sender to a dataset or a stream."""
    return closing(Publisher(dataset_url(url), clock, given_token(token, token_file)))


def dataset_url(url: str) -> str:
    """Check the URL of a dataset, which has neither query nor fragment."""
    if not is_web_url(url) or (not is_stream(url) and not {"?", "#"}.isdisjoint(url)):
        raise typer.BadParameter(f"not the URL of a dataset: {url!r}")
    return url


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that the first Ctrl-C or termination sets."""
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


# A file of facts to a server, or out of it.


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """A file, the dataset it goes to, and the label of its facts."""

    path: str
    url: str
    withdraw: bool = False
    expiration: datetime | None = None
    initial: datetime | None = None
    final: datetime | None = None
    batch: str | None = None
    token: str | None = None
    token_file: Path | None = None
    quiet: bool = False

    @property
    def label(self) -> Label | None:
        """The label of all facts; ``None``: they are annotated."""
        instants = (self.expiration, self.initial, self.final)
        if instants == (None, None, None):
            return None
        if self.expiration is not None and instants[1:] == (None, None):
            return Expiration(self.expiration)
        if self.expiration is not None or self.initial is None or self.final is None:
            raise SettingError("a label is --expiration, or --initial and --final")
        try:
            return Interval(self.initial, self.final)
        except AnnotationError as error:
            raise SettingError(str(error)) from error


@grouped
def publish(given: PublishOptions) -> None:
    """Publish a file of facts, annotated or with one label; or withdraw them."""
    file = input_place(given.path)
    media_type = MEDIA_TYPES.get(file.suffix)
    if media_type is None:
        raise InputError(f"its name ends in none of {', '.join(MEDIA_TYPES)}", str(file))
    dataset = dataset_url(given.url)
    if is_stream(dataset):
        raise SettingError("facts are published to datasets, not to streams")
    label = given.label
    body = content_of(file)
    token = given_token(given.token, given.token_file)
    with closing(
        Publisher(dataset, SystemClock(), token, media_type=media_type, withdraw=given.withdraw)
    ) as publisher:
        publisher.publish_body(body, label, given.batch or secrets.token_hex(16))
    if not given.quiet:
        done = "withdrawn from" if given.withdraw else "published to"
        typer.echo(f"{given.path} was {done} {dataset}", err=True)
