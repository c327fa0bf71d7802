"""Numbers of seconds that users give."""

from datetime import UTC, datetime, timedelta

import pytest

from annotations.seconds import MOST_SECONDS, check_seconds, is_seconds, seconds_from


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e10", "0.5", "-1", "x", ""])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        seconds_from(1)(text)


def test_what_is_taken() -> None:
    assert seconds_from(0)("0") == 0
    assert seconds_from(0.1)("1.5") == 1.5
    assert datetime(2026, 1, 1, tzinfo=UTC) + 2 * timedelta(seconds=MOST_SECONDS)
    assert not is_seconds(float("nan"))


def test_what_a_caller_gives_is_refused_by_its_name() -> None:
    check_seconds(one=0, other=None, last=1e9)
    check_seconds(1, 2, one=1, other=2.0)
    with pytest.raises(ValueError, match=r"^one: 1 to 2 seconds, not 2\.5$"):
        check_seconds(1, 2, one=2.5)
    with pytest.raises(ValueError, match=r"^many: 0 to 1000000000 seconds, not 1000"):
        check_seconds(many=10**400)
