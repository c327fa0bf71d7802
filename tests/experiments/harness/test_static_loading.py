"""Static data are the same with and without Spark."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from annotations.terms import DEFAULT_GRAPH, Quad, Term
from experiments.harness import static_loading
from experiments.harness.static_loading import StaticLoading
from tpf_server.store.static.columnar import open_store

QUADS = [
    Quad(Term("<urn:a>"), Term("<urn:p>"), Term(f'"{k}"'), graph)
    for k in range(3)
    for graph in (DEFAULT_GRAPH, Term("<urn:g>"))
]
CREATED = datetime(2020, 1, 1, tzinfo=UTC)


def version(path: Path) -> tuple[str, int]:
    with open_store(path) as store:
        return store.version, store.manifest.quads


def test_without_java_it_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPF_SPARK_JAVA_HOME", str(tmp_path / "no java"))
    said: list[str] = []
    loading = StaticLoading(said.append)
    for name in ("one", "two"):
        assert version(loading.store(tmp_path / name, QUADS, CREATED))[1] == len(QUADS)
    assert len(said) == 1
    assert "no java" in said[0]
    assert str(loading.by).startswith("this process, without Spark: ")


@pytest.mark.spark
def test_with_java_spark_loads_the_same(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        static_loading, "spark_context", lambda *_, **__: contextlib.nullcontext(spark)
    )
    loading = StaticLoading()
    parts = {"a": QUADS, "b": QUADS[:2]}
    found = loading.stores(tmp_path / "spark", parts, CREATED)
    assert loading.by == "Spark"
    local = StaticLoading(spark=False).stores(tmp_path / "local", parts, CREATED)
    assert {name: version(path) for name, path in found.items()} == {
        name: version(path) for name, path in local.items()
    }
