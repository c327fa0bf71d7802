"""Queries of a report over results."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.harness.results import Results

COLUMNS = ("mode", "clients", "seconds")
_rows = st.lists(st.fixed_dictionaries({name: st.sampled_from(["", "1", "2"]) for name in COLUMNS}))


@given(_rows, st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from([None, 1, 2, "3"])))
def test_rows_are_chosen_by_all_values_and_keep_their_order(
    rows: list[dict[str, str]], wanted: dict[str, object]
) -> None:
    chosen = Results(rows, {}, {}).where(**wanted)  # type: ignore[arg-type]
    texts = {name: "" if value is None else str(value) for name, value in wanted.items()}
    assert chosen.rows == [row for row in rows if texts.items() <= row.items()]


def test_a_point_looks_at_its_own_rows() -> None:
    read: Counter[str] = Counter()

    class Row(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            read[name] += 1
            return super().__getitem__(name)

    rows = [Row(mode="polling", tick=str(n), seconds="1") for n in range(1000)]
    results = Results(rows, {}, {})
    assert len(results.where(mode="polling").points("tick", "seconds")) == 1000
    assert sum(results.numbers("seconds", mode="polling", tick=n)[0] for n in range(1000)) == 1000
    assert read.total() < 15 * 1000


@given(_rows)
def test_a_table_has_a_row_of_means_for_each_combination(rows: list[dict[str, str]]) -> None:
    table = Results(rows, {}, {}).table("t", {"mode": "m", "clients": "n"}, {"seconds": "s"})
    assert table.header == ("m", "n", "s")
    combinations = [tuple(cells[:2]) for cells in table.rows]
    assert combinations == list(dict.fromkeys((row["mode"], row["clients"]) for row in rows))
    for mode, clients, mean in table.rows:
        chosen = [
            float(row["seconds"])
            for row in rows
            if row["seconds"] and (row["mode"], row["clients"]) == (mode, clients)
        ]
        assert mean == (pytest.approx(sum(chosen) / len(chosen)) if chosen else None)
