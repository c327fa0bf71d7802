"""``csparql``: equal rows under all rules, and its report."""

from collections.abc import Mapping
from typing import Any

import pytest

from experiments.harness.items import Run
from experiments.studies.csparql import (
    _RULES,
    _RULES_ON_SPARK,
    PeriodicQueries,
    Sizes,
    _brokers,
    _with_rules,
)
from tests.support.reports import Reported, raw_row


def reported(*rows: Mapping[str, Any]) -> Reported:
    return Reported(
        PeriodicQueries(), [raw_row(PeriodicQueries, **row, repetition=1) for row in rows]
    )


@pytest.mark.parametrize("query", ["filters", "by market", "over markets"])
def test_rules_change_no_rows(query: str, tmp_path: Any) -> None:
    run = Run(1, tmp_path, print)
    sizes = Sizes(seconds=4)
    with _brokers(run, 100) as static:
        rows = {
            label: [row["rows"] for row in _with_rules(sizes, run, 100, query, 2, rules, static)]
            for label, rules in _RULES.items()
        }
    assert rows["none"] != [0]
    assert all(found == rows["none"] for found in rows.values())


def test_what_runs_on_spark_are_rules() -> None:
    assert {label for _, label in _RULES_ON_SPARK} <= set(_RULES)


def test_the_report_says_what_was_measured() -> None:
    found = reported(
        {"part": "native", "query": "Q1", "static": 10_000, "ms_median": 3},
        {"part": "native", "query": "Q1", "static": 100_000, "ms_median": 462},
        *(
            {
                "part": "rules", "query": "filters", "static": static, "window": window,
                "rules": rules, "ms_median": ms,
            }
            for static in (10, 100)
            for window in (5, 20)
            for rules, ms in (("none", 8), ("push filters", static * window / 1000))
        ),
        {"part": "spark", "cores": 1, "events_per_second": 1000},
        {"part": "spark", "cores": 2, "events_per_second": 1500},
        *(
            {
                "part": "spark rules", "query": "filters", "static": 1000, "window": 5,
                "rules": rules, "cpu_us_per_event": us,
            }
            for rules, us in (("none", 100), ("all", 125))
        ),
    )  # fmt: skip
    assert found.texts == [
        "On another machine the original engine took 0.5 to 13 times as long for an evaluation as "
        "the native engine.",
        "Natively, filters: CPU with rules, times that without: push filters 0.00625 to 0.25.",
        "On Spark, filters: CPU with rules, times that without: all 1.25 to 1.25.",
    ]
    met = {each.what: each.met for each in found.targets}
    assert met["Q1, 10000 static triples: CPU ms per evaluation, median"] is True
    assert met["Q1, 100000 static triples: CPU ms per evaluation, median"] is False
    assert met["Q3, 10000 static triples: CPU ms per evaluation, median"] is None
    figures = found.figures
    assert [p.x for p in figures["rules-filters-by-window"].series["push filters"]] == [5, 20]
    assert [p.x for p in figures["rules-filters-by-static"].series["none"]] == [10, 100]
    assert "spark-by-cores" in figures


def claimed(factor: float) -> dict[str, str]:
    rows = [
        {
            "part": part, "query": query, "static": static, "window": window, "rules": label,
            column: 8 if label == "none" else 8 * factor,
        }
        for part, column in (("rules", "ms_median"), ("spark rules", "cpu_us_per_event"))
        for query, labels in (
            ("filters", ("none", "push both")),
            ("by market", ("none", "distribute totally")),
        )
        for static in (10, 100)
        for window in (5, 20)
        for label in labels
    ]  # fmt: skip
    return reported(*rows).verdicts


def test_verdicts_on_the_papers_claims_follow_the_data() -> None:
    names = {"filters by window", "filters by data", "filters on Spark", "aggregates"}
    assert claimed(0.5) == dict.fromkeys(names, "agrees")
    assert claimed(1.5) == dict.fromkeys(names, "differs")
    nothing = reported()
    assert [each.verdict for each in nothing.checks] == ["not measured here"] * 4
    assert nothing.texts == []
