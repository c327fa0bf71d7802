"""The examples of docs/store.md run."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/store.md"
TRAINS = "PREFIX t: <http://example.org/train#> t:d1 t:delay 60 . t:d2 t:delay 0 ; t:platform '3' ."


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/delays.nt").write_text("")
    (tmp_path / "more/delays.ttl").write_text(TRAINS.replace("d1", "d3"))
    (tmp_path / "trains.ttl").write_text(TRAINS)
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 2
    # The second example as it stands, then with what it computes shown.
    known: dict[str, object] = {}
    for example in examples:
        exec(example, known)
    asked = examples[1].replace("store.count(pattern)", "count = store.count(pattern)")
    exec(asked.replace("    store.quads(", "    page = store.quads("), known)
    assert known["count"] == 3
    page = known["page"]
    assert isinstance(page, list)
    assert {quad.object for quad in page} == {
        '"60"^^<http://www.w3.org/2001/XMLSchema#integer>',
        '"0"^^<http://www.w3.org/2001/XMLSchema#integer>',
    }
