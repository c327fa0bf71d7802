"""``tpf-query page``: the page as a folder for any static host."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tpf_client.errors import MapTilesError
from tpf_client.fragments.destinations import not_a_url
from tpf_client.map_tiles import MapTiles
from tpf_client.map_tiles import map_tiles as map_tiles_of
from tpf_client.page_files import Example, PageSettings, read_example, write_page
from tpf_client.page_runtime import (
    RuntimeMissingError,
    fetched_runtime,
    runtime_folder,
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)


ExampleFiles = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="a query that the page offers; its first comment is its title; can be repeated",
    ),
]
TilesTemplate = Annotated[
    str,
    typer.Option(
        metavar="TEMPLATE",
        help="URL with {z}, {x} and {y} of tiles that browsers get for the page's map from "
        "there; unset: none",
    ),
]
TilesAttribution = Annotated[
    str, typer.Option(metavar="TEXT", help="whose tiles these are, to be named below the map")
]


def offers(
    files: Sequence[Path] | None, template: str, attribution: str
) -> tuple[list[Example], MapTiles | None]:
    """Read the examples and the tiles of a page."""
    try:
        examples = [read_example(each) for each in files or ()]
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--example") from error
    try:
        return examples, map_tiles_of(template, attribution)
    except MapTilesError as error:
        raise typer.BadParameter(str(error), param_hint="--map-tiles") from error


@app.command(no_args_is_help=True)
def page(
    output: Annotated[
        Path,
        typer.Option(help="the folder to write, which is made", metavar="DIR", file_okay=False),
    ],
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="a dataset to ask where a link names none; can be repeated"
        ),
    ] = None,
    example: ExampleFiles = None,
    map_tiles: TilesTemplate = "",
    map_attribution: TilesAttribution = "",
) -> None:
    """Write a page that answers SPARQL over Triple Pattern Fragments in the browser.

    Any static host can serve the folder; #source=URL&query=… in a link is what it asks.
    """
    for url in source or ():
        if wrong := not_a_url(url):
            raise typer.BadParameter(wrong, param_hint="--source")
    examples, tiles = offers(example, map_tiles, map_attribution)
    try:
        if runtime_folder() is None:
            fetched_runtime()
    except RuntimeMissingError as error:
        sys.stderr.write(f"tpf-query: Python for browsers cannot be fetched: {error}\n")
        raise typer.Exit(1) from error
    write_page(output, PageSettings(source or (), examples, tiles=tiles))
    sys.stderr.write(f"tpf-query: {output}/index.html\n")
