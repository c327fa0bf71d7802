"""``page-readers``: a small run with a real server, and what is said of results."""

from pathlib import Path
from typing import Any

from experiments.harness.items import Finding, Target
from experiments.harness.report import write_report
from experiments.harness.results import Results
from experiments.studies.page_readers import READER_CASES, PageReaders
from tests.experiments.harness.test_runner import run

SMALL: dict[str, Any] = {
    "readers": 3, "facts": 4, "period": 0.5, "settle": 0.5, "seconds": 1.0, "pages_seconds": 0.2,
}  # fmt: skip


def test_readers_follow_their_answers(tmp_path: Path) -> None:
    results = run(tmp_path, PageReaders(), repetitions=1, tables={"page-readers": SMALL})
    assert results.failures == {}
    assert results.complete
    assert results.distinct("case") == list(READER_CASES)
    for row in results.rows:
        assert float(row["page_ms"]) > 0
        assert float(row["beside_memory_mib"]) > 0
        follows = row["case"] != "nobody"
        assert bool(row["first_ms"]) is follows
        if follows:
            assert 0 < float(row["first_ms"]) <= float(row["all_ms"])
            # How many events a short look sees depends on what else the machine does.
            assert row["events"].isdecimal()
    assert "3 readers of different queries: " in write_report(tmp_path, [PageReaders()]).read_text()


def test_the_sentences_follow_the_data() -> None:
    columns = (*PageReaders.keys, *PageReaders.values)

    def measured(case: str, **values: object) -> dict[str, str]:
        row = {**dict.fromkeys(columns, 1), "readers": 200, "case": case, **values}
        return {name: str(value) for name, value in row.items()}

    rows = [
        measured("nobody", first_ms="", all_ms="", page_ms=0.4),
        measured("one query", page_ms=0.6, beside_percent=2.25, first_ms=90),
        measured("different queries", page_ms=0.4, beside_percent=40, workers_percent=3),
    ]
    items = list(PageReaders().report(Results(rows, {}, {})))
    text = "\n".join(item.text for item in items if isinstance(item, Finding))
    assert "200 readers of one query: 2.25 % of a core" in text
    assert "takes 0.6 ms of CPU, 1.5 times that without readers" in text
    assert "40 % of a core for the process that answers queries and 3 % for the workers" in text
    (target,) = [item for item in items if isinstance(item, Target)]
    assert (target.measured, target.limit) == (90.0, 1000.0)
