"""The examples of the page on continuous queries run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

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
    first, records = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    connected = "<http://example.org/floorplan#connected>"
    (tmp_path / "floorplan.nt").write_text(
        f"<urn:room1> {connected} <urn:room1> .\n<urn:room2> {connected} <urn:room1> .\n"
    )
    assert printed(first, tmp_path) == "1 1000 (('<urn:alice>', '<urn:alice>'),)\n"
    assert printed(records, tmp_path) == "".join(
        f"""{at} (('"hall"', '"{degrees}"{DECIMAL}'),)\n"""
        for at, degrees in ((1000, "19.5"), (2000, "21.0"), (12500, "20.5"))
    )
