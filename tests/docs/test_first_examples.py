"""The first Python examples of the pages run as they stand, and print something."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support.running_server import TOKEN, RunningServer

PROJECT = Path(__file__).parents[2]
TRAINS = """@prefix t: <http://example.org/train#> .
<http://example.org/d/1> t:headSign "Oostende" .
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    (folder / "trains.ttl").write_text(TRAINS)
    (folder / "more").mkdir()
    (folder / "more" / "more.ttl").write_text(TRAINS.replace("d/1", "d/2"))
    return folder


@pytest.fixture(scope="module")
def origin(folder: Path) -> Iterator[str]:
    config = f'[datasets.trains]\nsource = "{folder / "trains.ttl"}"\nlive = true\n'
    with RunningServer(folder, config) as server:
        requests.post(
            f"{server.origin}trains/facts?expiration=2999-01-01T00:00:00Z",
            data="<http://example.org/d/1> <http://example.org/train#delay> 5 .",
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/turtle"},
            timeout=30,
        ).raise_for_status()
        yield server.origin


@pytest.mark.parametrize(
    ("page", "count", "prints"),
    [
        ("client", 1, ["http://example.org/d/1 Oostende"]),
        ("streaming", 1, ['?delay "5"^^', "2999-01-01 00:00:00+00:00"]),
        ("annotations", 1, ['"7a"', "temporal#expiration", "True"]),
        ("store", 2, ["2 triples, 4 terms", "<http://example.org/d/1>"]),
    ],
)
def test_first_examples(
    folder: Path, origin: str, page: str, count: int, prints: list[str]
) -> None:
    text = (PROJECT / "docs" / f"{page}.md").read_text("utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[:count]
    program = "\n".join(examples).replace("http://localhost:3000/", origin)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for wanted in prints:
        assert wanted in done.stdout
