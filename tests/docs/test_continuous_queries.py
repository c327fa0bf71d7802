"""The examples of the page on continuous queries run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.running_server import TOKEN, RunningServer

PAGE = Path(__file__).parents[2] / "docs" / "continuous-queries.md"


DECIMAL = "^^<http://www.w3.org/2001/XMLSchema#decimal>"


def printed(example: str, folder: Path) -> str:
    """What an example prints."""
    found = subprocess.run(
        [sys.executable, "-c", example], cwd=folder, capture_output=True, text=True, check=False
    )
    assert not found.stderr
    return found.stdout


def test_the_examples(tmp_path: Path) -> None:
    first, records, _ = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    connected = "<http://example.org/floorplan#connected>"
    (tmp_path / "floorplan.nt").write_text(
        f"<urn:room1> {connected} <urn:room1> .\n<urn:room2> {connected} <urn:room1> .\n"
    )
    assert printed(first, tmp_path) == "1 1000 (('<urn:alice>', '<urn:alice>'),)\n"
    assert printed(records, tmp_path) == "".join(
        f"""{at} (('"hall"', '"{degrees}"{DECIMAL}'),)\n"""
        for at, degrees in ((1000, "19.5"), (2000, "21.0"), (12500, "20.5"))
    )


def test_records_over_http(tmp_path: Path) -> None:
    *_, pushed = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    (tmp_path / "data.nt").write_text("<urn:a> <urn:p> <urn:b> .\n")
    config = 'continuous = true\nstream_time = "elements"\n[datasets.data]\nsource = "data.nt"\n'
    with RunningServer(tmp_path, config) as server:
        said = f"server, token = {server.url!r}, {TOKEN!r}\n"
        found = printed(said + pushed, tmp_path)
    assert found == "{'accepted': 2, 'dropped': 0, 'late': 0, 'refused': []}\n"
