"""Numbers of seconds that users give."""

from datetime import UTC, datetime, timedelta

import pytest

from annotations.seconds import MOST_SECONDS, is_seconds, seconds_from


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e10", "0.5", "-1", "x", ""])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        seconds_from(1)(text)


def test_what_is_taken() -> None:
    assert seconds_from(0)("0") == 0
    assert seconds_from(0.1)("1.5") == 1.5
    assert datetime(2026, 1, 1, tzinfo=UTC) + 2 * timedelta(seconds=MOST_SECONDS)
    assert not is_seconds(float("nan"))
