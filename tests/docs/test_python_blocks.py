"""The Python blocks of every page run in order and print something.

They get a server at `localhost`, on a port of its own.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from experiments.free_port import free_port
from tests.support.running_server import TOKEN, RunningServer

DOCS = Path(__file__).parents[2] / "docs"
DECIMAL = "^^<http://www.w3.org/2001/XMLSchema#decimal>"
TRAINS = '<http://example.org/d/1> <http://example.org/train#headSign> "Oostende" .\n'
CONFIG = """
base_url = "http://localhost:{port}/"
continuous = true
stream_time = "elements"
[datasets.trains]
source = "trains.nt"
live = true
"""
PRINTED = {
    "annotations.md": [['"7a"', "temporal#expiration", "True"]],
    "client.md": [
        ["http://example.org/d/1 Oostende\n"],
        ["http://example.org/d/1\n"],
        ["Oostende True\n"],
        ["Oostende\n"],
    ],
    "continuous-queries.md": [
        ["1 1000 (('<urn:alice>', '<urn:alice>'),)\n"],
        [
            f"""{at} (('"hall"', '"{degrees}"{DECIMAL}'),)\n"""
            for at, degrees in ((1000, "19.5"), (2000, "21.0"), (12500, "20.5"))
        ],
        ["{'accepted': 2, 'dropped': 0, 'late': 0, 'refused': []}\n"],
    ],
    "csparql.md": [["1700000100000 ('?district', '?passages') (('<urn:district>', '\"12\""]],
    "rspql.md": [["1000 (('<urn:hall>', '\"19\"'),)\n3000 (('<urn:hall>', '\"21\"'),)\n"]],
    "store.md": [["1 triples, 3 terms\n"], ["1\n<http://example.org/d/1>"]],
    "streaming.md": [['?delay "5"^^', "2999-01-01 00:00:00+00:00"]],
}
"""Of each page, what its blocks print, among other things."""


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder, port = tmp_path_factory.mktemp("served"), free_port()
    (folder / "trains.nt").write_text(TRAINS)
    with RunningServer(folder, CONFIG.format(port=port), port=port) as server:
        requests.post(
            f"{server.origin}trains/facts?expiration=2999-01-01T00:00:00Z",
            data="<http://example.org/d/1> <http://example.org/train#delay> 5 .",
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/turtle"},
            timeout=30,
        ).raise_for_status()
        yield port


@pytest.mark.parametrize("page", [page.name for page in sorted(DOCS.glob("*.md"))])
def test_python_blocks(
    tmp_path: Path, port: int, page: str, printed: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(DOCS / page)
    assert len(blocks) == len(PRINTED.get(page, []))
    for block, wanted in zip(blocks, PRINTED.get(page, []), strict=True):
        said = printed(block.replace("localhost:3000", f"localhost:{port}"))
        for each in wanted:
            assert each in said
