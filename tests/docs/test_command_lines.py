"""What the pages show beside Python is what the commands and parsers take.

Options of command lines exist; queries, patches and mappings are read.
"""

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from experiments.cli import ALL, names
from loaders.sources.csvw_mapping import Tabular
from tests.support.peers import PROJECT
from tpf_client.commands import COMMANDS
from tpf_client.sparql.parser import parse_query
from tpf_server.web.publish import parse_patch

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
EVERYWHERE = frozenset({"--version", "--help", "-h"})
OPTION = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*|-[a-z])(?![\w-])")


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The blocks of a page in these languages (an empty one: in none)."""
    for language, block in re.findall(
        r"^```(\w*)[^\n]*\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S
    ):
        if language in languages:
            yield block


def command_lines(page: Path) -> Iterator[str]:
    """The commands of ours that a page shows, each in one line, and nothing that stands around."""
    in_sentences = r"`(tpf-(?:query|server) [^`]*-[^`]*|tpf-[a-z]+ [a-z][^`]*--[^`]*)`"
    yield from re.findall(in_sentences, page.read_text("utf-8"))
    for block in blocks(page, "", "sh", "console"):
        joined = re.sub(r"\\?\n +", " ", block)
        for line in joined.splitlines():
            yield from re.findall(r"(?:^|[\s(])(tpf-[a-z]+ [^#;&>\"]*)", line)


def command(name: str) -> Any:
    """What click, or the one that typer brings, makes of a command."""
    module, attribute, *_ = COMMANDS[name]
    found = getattr(import_module(module), attribute)
    return typer.main.get_command(found) if isinstance(found, typer.Typer) else found


def options(line: str) -> Mapping[str, frozenset[str]]:
    """The options that a command line may have, by the names of its commands."""
    name, *words = line.split()
    if words and f"{name} {words[0]}" in COMMANDS:
        name, *words = f"{name} {words[0]}", *words[1:]
    found = {name: command(name)}
    if within := getattr(found[name], "commands", None):
        # A line may name several at once: irail|flights.
        found = {each: within[each] for each in words[0].split("|")}
    return {
        each: EVERYWHERE.union(*(parameter.opts for parameter in one.params),
                               *(parameter.secondary_opts for parameter in one.params))
        for each, one in found.items()
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_have_options_that_exist(page: Path) -> None:
    for line in command_lines(page):
        for name, existing in options(line).items():
            assert set(OPTION.findall(line)) <= existing, (name, line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_experiments_that_are_run_exist(page: Path) -> None:
    run = re.findall(r"tpf-experiments run ([a-z-]+)", page.read_text("utf-8"))
    assert {*run} <= {*names(), ALL}


def test_command_lines_are_found() -> None:
    lines = [line for page in PAGES for line in command_lines(page)]
    programs = {line.split()[0] for line in lines}
    assert programs >= {"tpf-server", "tpf-query", "tpf-load", "tpf-replay", "tpf-continuous"}
    assert sum(len(OPTION.findall(line)) for line in lines) > 50


def test_queries_patches_and_mappings_are_read(tmp_path: Path) -> None:
    docs = PROJECT / "docs"
    for query in blocks(docs / "client.md", "sparql"):
        assert parse_query(query).form == "SELECT"
    (patch,) = (each for each in blocks(docs / "http-interface.md", "") if "TX ." in each)
    assert [len(quads) for quads in parse_patch(patch.encode())] == [1, 1]
    (mapping,) = blocks(docs / "loading.md", "json")
    (tmp_path / "sensors.json").write_text(mapping)
    (tmp_path / "sensors.csv").write_text("id,opened,height\na,21.03.2014,7.5\n")
    source = Tabular(tmp_path / "sensors.json")
    quads = [quad for piece in source.pieces(1) for quad in source.quads(piece)]
    assert [each.object.partition("^^")[0] for each in quads] == [
        '"2014-03-21"', '"7.5"', "<http://www.w3.org/ns/sosa/Sensor>"
    ]  # fmt: skip
