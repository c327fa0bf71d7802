"""``tpf-query page``: a folder for any static host."""

import gzip
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tpf_client.app.page_command import app
from tpf_client.page_runtime import runtime_folder

SOURCE = "http://fragments.test/d"
MOST_BYTES = 5_000_000
pytestmark = pytest.mark.skipif(
    runtime_folder() is None,
    reason="Python for browsers was not fetched: python -m tpf_client.page_runtime",
)


def test_a_folder_has_all_that_the_page_loads(tmp_path: Path) -> None:
    example = tmp_path / "late.rq"
    example.write_text("# Late trains\nSELECT * {}")
    folder = tmp_path / "page"
    arguments = ["--output", str(folder), "--source", SOURCE, "--example", str(example)]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (0, f"tpf-query: {folder}/index.html\n")
    told = json.loads((folder / "page.json").read_text())
    assert (told["datasets"], told["endpoint"]) == ([SOURCE], False)
    assert told["examples"][0]["title"] == "Late trains"
    files = [each for each in folder.rglob("*") if each.is_file()]
    kept = [each for each in files if each.suffix not in (".br", ".gz")]
    sent = sum(each.with_name(f"{each.name}.br").stat().st_size for each in kept)
    assert sent <= MOST_BYTES
    for file in kept:
        assert gzip.decompress(file.with_name(f"{file.name}.gz").read_bytes()) == file.read_bytes()
    # Whatever names a file names one that is there; nothing names another host.
    html = (folder / "index.html").read_text()
    named = re.findall(r'"([\w-]+-[0-9a-f]{16}\.\w+)"', html)
    (engine,) = [each for each in named if each.startswith("engine")]
    script = (folder / engine).read_text()
    named += re.findall(r"packages-[0-9a-f]{16}\.zip", script)
    named.append(re.findall(r"python-[0-9a-f]{16}", script)[0] + "/pyodide.mjs")
    assert len(named) == 6
    assert all((folder / each).is_file() for each in named)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--source", "fragments.test/d"], "http://fragments.test/d"),
     (["--map-tiles", "x"], "map-tiles"), (["--example", "nowhere.rq"], "nowhere.rq")],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["--output", str(tmp_path / "page"), *arguments])
    assert result.exit_code == 2
    assert says in result.output
    assert not (tmp_path / "page").exists()
