"""Units of time in windows."""

import pytest

from tests.support.continuous_reference import window_of
from tpf_server.continuous.languages.csparql.parser import parse as parse_csparql
from tpf_server.continuous.languages.rspql.parser import parse as parse_rspql
from tpf_server.continuous.runtime.windows.specification import nanoseconds_of

CSPARQL = "SELECT * FROM STREAM <s> [RANGE {0} TUMBLING] {{ ?s ?p ?o }}"
RSPQL = (
    "REGISTER RSTREAM <o> AS SELECT * FROM NAMED WINDOW <w> ON <s> [RANGE {0} STEP {0}]"
    " WHERE {{ WINDOW <w> {{ ?s ?p ?o }} }}"
)


@pytest.mark.parametrize(
    ("said", "milliseconds"),
    [
        ("5000000 ns", 5), ("5999999 nanoseconds", 5), ("5ms", 5), ("5 milli", 5),
        ("5 millis", 5), ("5 Milliseconds", 5), ("2 s", 2000), ("2 secs", 2000), ("1 second", 1000),
        ("2m", 120_000), ("2 mins", 120_000), ("1 hour", 3_600_000), ("2 DAYS", 172_800_000),
    ],
)  # fmt: skip
def test_all_languages_have_the_same_units(said: str, milliseconds: int) -> None:
    length = f"RANGE {milliseconds}ms"
    assert str(window_of(f"RANGE {said}")) == length
    for parse, text in ((parse_csparql, CSPARQL), (parse_rspql, RSPQL)):
        (clause,) = parse(text.format(said)).streams
        assert str(clause.window).startswith(f"{length} ")


@pytest.mark.parametrize("name", ["", "parsec", "month", "n", "5", "ss", "mss", "hs", "secss"])
def test_other_words_are_no_units(name: str) -> None:
    assert nanoseconds_of(name) is None
