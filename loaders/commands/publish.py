"""``tpf-load publish``: a file of facts to a server, or out of it."""

import secrets
from datetime import datetime
from typing import Annotated

import typer

from annotations.clock import SystemClock
from annotations.errors import AnnotationError
from annotations.labels import Expiration, Interval, Label
from loaders.commands.options import Quiet, instant_option
from loaders.commands.publishing import TokenFile, TokenOption, dataset_url, given_token
from loaders.errors import InputError, SettingError
from loaders.places import input_place
from loaders.publisher import FilePublisher, is_stream

_MEDIA_TYPES = {
    ".nq": "application/n-quads",
    ".nt": "application/n-triples",
    ".ttl": "text/turtle",
    ".trig": "application/trig",
    ".jsonld": "application/ld+json",
    ".rdf": "application/rdf+xml",
    ".rdfp": "application/rdf-patch",
}


def publish(
    path: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help=f"Facts: {', '.join(_MEDIA_TYPES)} (RDF Patch); or their URL."
        ),
    ],
    url: Annotated[str, typer.Argument(metavar="URL", help="The URL of the dataset.")],
    withdraw: Annotated[
        bool,
        typer.Option(
            "--withdraw",
            help="The facts do not hold: from now on, or from --initial to --final, or when their "
            "annotations say.",
        ),
    ] = False,
    expiration: Annotated[
        datetime | None,
        typer.Option(parser=instant_option, metavar="T", help="Until when they hold."),
    ] = None,
    initial: Annotated[
        datetime | None,
        typer.Option(parser=instant_option, metavar="T", help="From when, with --final."),
    ] = None,
    final: Annotated[
        datetime | None,
        typer.Option(parser=instant_option, metavar="T", help="Until when, with --initial."),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(metavar="ID", help="What is sent again under the same name counts once."),
    ] = None,
    token: TokenOption = None,
    token_file: TokenFile = None,
    quiet: Quiet = False,
) -> None:
    """A file of facts, annotated or with one label for all; a correction; or a withdrawal."""
    file = input_place(path)
    media_type = _MEDIA_TYPES.get(file.suffix)
    if media_type is None:
        raise InputError(f"its name ends in none of {', '.join(_MEDIA_TYPES)}", str(file))
    dataset = dataset_url(url)
    if is_stream(dataset):
        raise SettingError("what a stream has told cannot be told otherwise: give a dataset")
    label = _label(expiration, initial, final)
    try:
        body = file.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), str(file)) from error
    publisher = FilePublisher(
        dataset, SystemClock(), given_token(token, token_file), media_type, withdraw=withdraw
    )
    try:
        publisher.publish_body(body, label, batch or secrets.token_hex(16))
    finally:
        publisher.close()
    if not quiet:
        done = "withdrawn from" if withdraw else "published to"
        typer.echo(f"{path} was {done} {dataset}", err=True)


def _label(
    expiration: datetime | None, initial: datetime | None, final: datetime | None
) -> Label | None:
    if expiration is None and initial is None and final is None:
        return None
    if expiration is not None and initial is None and final is None:
        return Expiration(expiration)
    if expiration is not None or initial is None or final is None:
        raise SettingError("a label is --expiration, or --initial and --final")
    try:
        return Interval(initial, final)
    except AnnotationError as error:
        raise SettingError(str(error)) from error
