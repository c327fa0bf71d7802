"""The command ``tpf-load``."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from loaders.commands import load_feeds, load_ldes, load_sources, publishing, stream
from tpf_server.spark.session import SparkSettings, archive_classes

load_app = typer.Typer(
    name="tpf-load", add_completion=False, rich_markup_mode=None, no_args_is_help=True,
    help="Turn real data into stores and live facts, with Spark or in one process.",
)  # fmt: skip


def classes(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="some 190 MB are written there")],
) -> None:
    """Archive Java's classes for TPF_SPARK_CLASSES (30 s): Spark starts twice as fast."""
    settings = SparkSettings.from_environment(os.environ, classes=str(folder))
    typer.echo(archive_classes(settings))


LOADS: dict[str, Callable[..., None]] = {
    "rdf": load_sources.rdf,
    "irail": load_sources.irail,
    "flights": load_sources.flights,
    "gtfs": load_sources.gtfs,
    "gtfs-rt": load_feeds.gtfs_rt,
    "siri": load_feeds.siri,
    "gbfs": load_feeds.gbfs,
    "json": load_feeds.json,
    "ngsi-ld": load_feeds.ngsi_ld,
    "citybench": load_sources.citybench,
    "taxi": load_sources.taxi,
    "csv": load_sources.csv,
    "ldes": load_ldes.ldes,
    "stream": stream.stream,
    "publish": publishing.publish,
    "classes": classes,
}
for _name, _command in LOADS.items():
    load_app.command(_name)(_command)
