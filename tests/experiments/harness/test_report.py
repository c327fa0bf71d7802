"""Numbers and units in reports."""

from pathlib import Path

import pytest

from experiments.harness.items import CellValue, Figure, Point
from experiments.harness.report import draw, duration, rounded, shown_value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.123456, "0.123"), (12.0, "12"), (3522.0147, "3,520"), (195997, "195,997"),
        # Raw data are texts.
        ("3522.0147", "3,520"), ("195997", "195,997"), ("-4.5678", "-4.57"), ("1e-05", "1e-05"),
        ("Q1", "Q1"), ("0.33.0", "0.33.0"), ("1 2", "1 2"), ("", "—"), (None, "—"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits_and_counts_all(value: CellValue, shown: str) -> None:
    assert shown_value(value) == shown


def test_times_have_the_unit_that_fits() -> None:
    shown = [duration(each) for each in (0.0, 0.0772, 1.0, 709.4, 1100, 119_000)]
    assert shown == ["0 ms", "77.2 µs", "1 ms", "709 ms", "1.1 s", "119 s"]


def test_large_numbers_have_three_digits() -> None:
    assert rounded(243_688) == "244,000"


def test_a_long_label_is_written_in_lines_that_fit(tmp_path: Path) -> None:
    label = "µs of CPU per element, least of the rounds"
    series = {str(n): [Point("all", 1.0)] for n in range(10)}
    text = draw(Figure("f", "F", "", label, series, kind="bars"), tmp_path).read_text()
    assert label not in text
    assert all(f">{line}<" in text for line in ("µs of CPU per element, least", "of the rounds"))
