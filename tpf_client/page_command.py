"""``tpf-query page``: the page as a folder for any static host."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tpf_client.errors import MapTilesError
from tpf_client.fragments.destinations import not_a_url
from tpf_client.map_tiles import map_tiles as named_tiles
from tpf_client.page_files import PageSettings, read_example, write_page
from tpf_client.page_runtime import (
    RuntimeMissingError,
    fetched_runtime,
    runtime_folder,
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)


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
    example: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="a query that the page offers; its first comment is its title; can be repeated",
        ),
    ] = None,
    map_tiles: Annotated[
        str,
        typer.Option(
            metavar="TEMPLATE",
            help="URL with {z}, {x} and {y} of tiles that browsers get for the page's map from "
            "there; unset: none",
        ),
    ] = "",
    map_attribution: Annotated[
        str, typer.Option(metavar="TEXT", help="whose tiles these are, to be named below the map")
    ] = "",
) -> None:
    """Write a page that answers SPARQL over Triple Pattern Fragments in the browser.

    Any static host can serve the folder. A link names what is asked:
    #source=URL&query=…; Python for browsers is fetched from the npm registry where it is missing.
    """
    for url in source or ():
        if wrong := not_a_url(url):
            raise typer.BadParameter(wrong, param_hint="--source")
    try:
        examples = [read_example(each) for each in example or ()]
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(str(error), param_hint="--example") from error
    try:
        tiles = named_tiles(map_tiles, map_attribution)
    except MapTilesError as error:
        raise typer.BadParameter(str(error), param_hint="--map-tiles") from error
    try:
        if runtime_folder() is None:
            fetched_runtime()
    except RuntimeMissingError as error:
        sys.stderr.write(f"tpf-query: Python for browsers cannot be fetched: {error}\n")
        raise typer.Exit(1) from error
    write_page(output, PageSettings(source or (), examples, tiles=tiles))
    sys.stderr.write(f"tpf-query: {output}/index.html\n")
