"""The command ``tpf-load``."""

from collections.abc import Callable

import typer

from loaders.commands import load_feeds, load_ldes, load_sources, publishing, stream

load_app = typer.Typer(
    name="tpf-load", add_completion=False, rich_markup_mode=None, no_args_is_help=True,
    help="Turn real data into stores and live facts, with Spark or in one process.",
)  # fmt: skip

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
}
for _name, _command in LOADS.items():
    load_app.command(_name)(_command)
