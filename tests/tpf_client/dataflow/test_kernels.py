"""Which kernel is used: a machine without a compiler has the one in Python."""

import sys

import pytest

from tpf_client.dataflow.kernels import (
    VARIABLE,
    compiled_groups,
    kernel_in_use,
    ranked_groups,
)
from tpf_client.dataflow.state.ranked_groups import RankedGroups
from tpf_client.dataflow.state.ranking import NONE, Branch, By, Ranking

RANKING = Ranking(1, (Branch(5),), (By(1, NONE, descending=True),), (0,), 0, 2, apart=False)


def test_who_asks_decides_then_the_environment(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    usual = "compiled" if compiled_groups() else "python"
    assert kernel_in_use() == kernel_in_use("compiled") == usual
    monkeypatch.setenv(VARIABLE, "off")
    assert kernel_in_use() == "off"
    assert kernel_in_use("python") == "python"
    monkeypatch.setenv(VARIABLE, "fast")
    with pytest.raises(ValueError, match="'fast' is none of compiled, python, off"):
        kernel_in_use()


def test_without_the_extension_there_is_the_one_in_python(monkeypatch):
    monkeypatch.setitem(sys.modules, "tpf_client.dataflow.state._ranked_groups", None)
    compiled_groups.cache_clear()
    try:
        assert kernel_in_use("compiled") == "python"
        assert isinstance(ranked_groups("compiled", RANKING), RankedGroups)
    finally:
        compiled_groups.cache_clear()
