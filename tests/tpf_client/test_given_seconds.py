"""Impossible seconds are refused by name in all interfaces."""

from collections.abc import Callable
from typing import Any

import pytest

from tpf_client import Client
from tpf_client.app.endpoint import EndpointLimits
from tpf_client.fragments.responses import Limits
from tpf_client.planner.budget import Allowance


def _stream(**options: Any) -> object:
    with Client("http://server.test/d") as client:
        return client.stream("ASK { ?s ?p ?o }", **options)


@pytest.mark.parametrize("value", [float("nan"), 1e10, -1.0])
@pytest.mark.parametrize(
    ("takes", "name"),
    [
        *((_stream, name) for name in ("min_interval", "max_interval", "every", "keep_checking",
                                       "static_recheck", "jitter", "grace")),
        *((Limits, name) for name in ("connect_timeout", "read_timeout", "total_timeout",
                                      "backoff", "max_backoff", "max_query_seconds")),
        (Allowance, "seconds"),
        (EndpointLimits, "min_interval"),
    ],
)  # fmt: skip
def test_what_is_refused(takes: Callable[..., object], name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: .* seconds, not "):
        takes(**{name: value})


@pytest.mark.parametrize(
    "name", ["retries", "max_page_bytes", "max_query_bytes", "max_query_requests"]
)
def test_limits_are_whole_numbers(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: 0 or more, not -1$"):
        Limits(**{name: -1})
    with pytest.raises(TypeError, match=f"^{name}: int, not str$"):
        Limits(**{name: "1"})  # type: ignore[arg-type]


def test_a_grace_is_a_week_at_most() -> None:
    with pytest.raises(ValueError, match="grace: 0 to 604800 seconds, not 604801"):
        _stream(grace=604_801)
