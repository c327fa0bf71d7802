"""Generated code can be read in tracebacks."""

import gc
import linecache
import traceback

import pytest

from tpf_client.dataflow.codegen import compiled
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
    assert linecache.cache[file][0] == len(SOURCE)
    linecache.checkcache()
    assert linecache.getline(file, 2) == "    first, second = row\n"
    del function
    gc.collect()
    assert file not in linecache.cache
