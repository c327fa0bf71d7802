"""The examples of docs/store.md run."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/store.md"
TRAINS = (
    "PREFIX t: <http://example.org/train#> t:d1 t:headSign 'A' . t:d2 t:headSign 'B' ; t:of 1 ."
)


def test_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/delays.nt").write_text("")
    (tmp_path / "more/delays.ttl").write_text(TRAINS.replace("d1", "d3"))
    (tmp_path / "trains.ttl").write_text(TRAINS)
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 2
    known: dict[str, object] = {}
    for example in examples:
        exec(example, known)
    written, count, *quads = capsys.readouterr().out.splitlines()
    assert written.startswith("4 triples")
    assert count == "3"
    assert {quad.split()[2] for quad in quads} == {'"A"', '"B"'}
    assert len(quads) == 3
