"""Which kernel is used: without a compiler there are the operators."""

import sys

import pytest

from tpf_client.dataflow import kernels
from tpf_client.dataflow.kernels import (
    VARIABLE,
    compiled_groups,
    kernel_in_use,
    why_not_compiled,
)


def test_who_asks_decides_then_the_environment(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    usual = "compiled" if compiled_groups() else "off"
    assert kernel_in_use() == kernel_in_use("compiled") == usual
    monkeypatch.setenv(VARIABLE, "off")
    assert kernel_in_use() == "off"
    assert kernel_in_use("compiled") == usual
    monkeypatch.setenv(VARIABLE, "fast")
    with pytest.raises(ValueError, match="'fast' is none of compiled, off"):
        kernel_in_use()


def test_without_the_extension_there_are_the_operators(monkeypatch):
    monkeypatch.setitem(sys.modules, "tpf_client.dataflow.state._ranked_groups", None)
    compiled_groups.cache_clear()
    try:
        assert kernel_in_use("compiled") == "off"
        assert why_not_compiled() == "the package was built without a compiler"
    finally:
        compiled_groups.cache_clear()


@pytest.mark.parametrize("change", ["source", "library"])
def test_a_library_of_another_source_is_not_used(monkeypatch, tmp_path, change):
    if compiled_groups() is None:
        pytest.skip("built without a compiler")
    assert why_not_compiled() is None
    library = sys.modules["tpf_client.dataflow.state._ranked_groups"]
    if change == "source":
        other = tmp_path / "_ranked_groups.c"
        other.write_bytes(kernels._SOURCE.read_bytes() + b"\n")
        monkeypatch.setattr(kernels, "_SOURCE", other)
    else:
        # One that does not say of what it is.
        monkeypatch.delattr(library, "SOURCE")
    compiled_groups.cache_clear()
    try:
        assert kernel_in_use("compiled") == "off"
        assert "build the package again" in str(why_not_compiled())
        # Who has only the library has no other.
        monkeypatch.setattr(kernels, "_SOURCE", tmp_path / "none")
        compiled_groups.cache_clear()
        assert kernel_in_use("compiled") == "compiled"
    finally:
        compiled_groups.cache_clear()
