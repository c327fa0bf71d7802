"""The example of the page on continuous queries runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "continuous-queries.md"


def test_the_example(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    connected = "<http://example.org/floorplan#connected>"
    (tmp_path / "floorplan.nt").write_text(
        f"<urn:room1> {connected} <urn:room1> .\n<urn:room2> {connected} <urn:room1> .\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.stderr) == ("1 1000 (('<urn:alice>', '<urn:alice>'),)\n", "")
