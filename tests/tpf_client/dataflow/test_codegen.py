"""Generated code can be read: in tracebacks, and as files."""

import gc
import linecache
import traceback
from pathlib import Path

import pytest

from tpf_client.dataflow.codegen import compiled, dump, sources
from tpf_client.dataflow.state.row_index import RowBag

SOURCE = """def halves(row):
    first, second = row
    return first // second  # the line at fault"""


def test_an_engine_that_fails_in_generated_code_shows_the_line() -> None:
    bag = RowBag(2)
    with pytest.raises(TypeError) as caught:
        bag.change((1, 2), None)  # type: ignore[arg-type]
    assert "+ count" in traceback.format_exception(caught.value)[-2]


def test_the_text_goes_with_its_function() -> None:
    before = set(linecache.cache)
    function = compiled(SOURCE, "halves", {})
    (file,) = set(linecache.cache) - before
    assert sources()[file] == SOURCE
    linecache.checkcache()
    assert linecache.getline(file, 2) == "    first, second = row\n"
    del function
    gc.collect()
    assert file not in linecache.cache
    assert file not in sources()


def test_all_that_is_in_use_can_be_written_out(tmp_path: Path) -> None:
    bag = RowBag(3)
    bag.want((1,))
    count = dump(tmp_path / "code")
    files = list((tmp_path / "code").iterdir())
    assert count == len(files) > 0
    assert any("bucket = t0.get(key)" in file.read_text(encoding="utf-8") for file in files)
    for file in files:
        compile(file.read_text(encoding="utf-8"), file.name, "exec")
