"""``load``: a small load by each engine, and its report."""

from pathlib import Path
from typing import Any

import pytest

from experiments.harness.items import Finding
from experiments.harness.results import Results
from experiments.studies.load import LOCAL, ON_SPARK, ONE_CORE, Load
from tests.experiments.harness.test_runner import run
from tpf_server.spark.java import JavaNotFoundError


def test_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> Path:
        raise JavaNotFoundError("no Java here")

    monkeypatch.setattr("experiments.studies.load.find_java", missing)
    sizes = {"triples": [2000, 4000], "one_core": [2000, 4000]}
    results = run(tmp_path, Load(), tables={"load": sizes})
    assert results.left_out == dict.fromkeys((ON_SPARK, ONE_CORE), "not here: no Java here")
    assert results.failures == {}
    assert results.numbers("quads", engine=LOCAL) == [2000, 4000]
    assert all(peak > 10 for peak in results.numbers("peak_mib"))
    assert all(cpu > 0 for cpu in results.numbers("cpu_seconds"))
    assert "byte for byte" not in texts(results)


@pytest.mark.spark
def test_spark_writes_the_same_store(tmp_path: Path) -> None:
    results = run(tmp_path, Load(), tables={"load": {"triples": [2000]}})
    if results.left_out:
        pytest.skip(results.left_out[ON_SPARK])
    assert results.complete
    assert results.numbers("quads", engine=ON_SPARK) == [2000]
    assert "the same stores, byte for byte" in texts(results)


def texts(results: Results) -> str:
    return "\n".join(i.text for i in Load().report(results) if isinstance(i, Finding))


def row(**values: Any) -> dict[str, str]:
    columns = (*Load.keys, *Load.values)
    return {**dict.fromkeys(columns, ""), **{name: str(v) for name, v in values.items()}}


def test_sentences_follow_the_data() -> None:
    rows = [
        row(triples=1000, engine=ON_SPARK, seconds=10, peak_mib=900, version="a"),
        row(triples=1000, engine=LOCAL, seconds=1, peak_mib=100, version="a"),
        row(triples=9000, engine=ON_SPARK, seconds=20, peak_mib=900, version="b"),
        row(triples=9000, engine=LOCAL, seconds=30, peak_mib=500, version="c"),
    ]
    said = texts(Results(rows, {}, {}))
    assert "Spark: a store of 9,000 triples in 20 s, with at most 900 MiB of memory." in said
    assert "different stores of 9,000 triples" in said
    said = texts(Results(rows[:2], {}, {}))
    assert "the same stores, byte for byte" in said
