"""``load``: a small load by each engine, and its report."""

from pathlib import Path
from typing import Any

import pytest

from experiments.harness.results import Results
from experiments.studies.fragments import PATTERNS, START
from experiments.studies.load import LOADED, LOCAL, ON_SPARK, ONE_CORE, SERVED, Load
from tests.experiments.harness.test_runner import run
from tests.support.reports import Reported, raw_row
from tpf_server.spark.java import JavaNotFoundError

SMALL: dict[str, Any] = {"page_seconds": 0.02, "warm_up_seconds": 0.02, "rounds": 1}


def test_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> Path:
        raise JavaNotFoundError("no Java here")

    monkeypatch.setattr("experiments.studies.boards.find_java", missing)
    monkeypatch.setattr("experiments.studies.fragments._URLS", 50)
    sizes = {**SMALL, "triples": [2000, 4000], "one_core": [2000]}
    results = run(tmp_path, Load(), repetitions=1, tables={"load": sizes})
    assert results.left_out == dict.fromkeys((ON_SPARK, ONE_CORE), "not here: no Java here")
    assert results.failures == {}
    assert results.numbers("quads", engine=LOCAL) == [2000, 4000]
    assert all(peak > 10 for peak in results.numbers("peak_mib"))
    assert all(cpu > 0 for cpu in results.numbers("cpu_seconds"))
    assert "byte for byte" not in texts(results)
    served = results.where(engine=SERVED)
    for triples in (2000, 4000):
        assert all(served.numbers("p95_ms", triples=triples, pattern=each) for each in PATTERNS)
        assert served.numbers("start_seconds", triples=triples, pattern=START)
    said = texts(results)
    assert "Of 4,000 triples, a server answers" in said
    assert "Extrapolated to 40,000 triples" in said


@pytest.mark.spark
def test_spark_writes_the_same_store(tmp_path: Path) -> None:
    class OnlyLoads(Load):
        def groups(self, settings: Any, run: Any) -> Any:
            return [each for each in super().groups(settings, run) if "pages" not in each.name]

    sizes = {"triples": [2000], "one_core": []}
    results = run(tmp_path, OnlyLoads(), repetitions=1, tables={"load": sizes})
    if results.left_out:
        pytest.skip(results.left_out[ON_SPARK])
    assert results.complete
    assert results.numbers("quads", engine=ON_SPARK) == [2000]
    assert "the same stores of 2,000 triples, byte for byte" in texts(results)


def texts(results: Results | list[dict[str, str]]) -> str:
    return "\n".join(Reported(Load(), results).texts)


def row(**values: Any) -> dict[str, str]:
    return raw_row(Load, **({"pattern": LOADED} | values))


def test_extrapolations_say_how_costs_grew() -> None:
    def loads(seconds: float) -> list[dict[str, str]]:
        sizes = {1_000_000: 10.0, 10_000_000: 100.0, 100_000_000: seconds}
        return [
            row(triples=n, engine=LOCAL, seconds=took, peak_mib=took * 1024, version=n)
            for n, took in sizes.items()
        ]

    linear = texts(loads(1000.0))
    assert f"1,000,000,000 triples, {LOCAL}: 10,000 s and 10,000 GiB" in linear
    assert "this goes on" in linear
    assert "it will be more than this" in texts(loads(5000.0))
    assert "Extrapolated" not in texts(loads(50.0))

    pages = [
        row(triples=n, engine=SERVED, pattern=pattern, p50_ms=1, p95_ms=p95)
        for pattern, each in {"subject": (1, 2, 2), "deep page": (1, 2, 4)}.items()
        for n, p95 in zip((10**6, 10**7, 10**8), each, strict=True)
    ]
    starts = row(triples=10**8, engine=SERVED, pattern=START, start_seconds=2, start_memory_mib=9)
    report = Reported(Load(), [*loads(1000.0), *pages, starts])
    said = "\n".join(report.texts)
    assert "answers 2 s after its start with 9 MiB; the slowest kind of page (deep page)" in said
    assert "Extrapolated to 1,000,000,000 triples: 8 ms, the factor 2 for each ten times" in said
    (page,) = (each for each in report.targets if each.what.startswith("p95"))
    assert (page.measured, page.met) == (4.0, True)


def test_sentences_follow_the_data() -> None:
    rows = [
        row(triples=1000, engine=ON_SPARK, seconds=10, peak_mib=900, version="a"),
        row(triples=1000, engine=LOCAL, seconds=1, peak_mib=100, version="a"),
        row(triples=9000, engine=ON_SPARK, seconds=20, peak_mib=900, version="b"),
        row(triples=9000, engine=LOCAL, seconds=30, peak_mib=500, version="c"),
    ]
    said = texts(rows)
    assert "Spark: a store of 9,000 triples in 20 s, with at most 900 MiB of memory." in said
    assert "different stores of 9,000 triples" in said
    # Of sizes that only one engine had nobody knows.
    assert "the same stores of 1,000 triples, byte for byte" in texts(rows[:3])
    assert "stores of" not in texts(rows[1:3])
