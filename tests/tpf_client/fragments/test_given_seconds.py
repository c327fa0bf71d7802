"""Seconds that nobody can wait for are refused by name, wherever a caller gives them."""

from collections.abc import Callable
from typing import Any

import pytest

from tpf_client import Client
from tpf_client.endpoint import SparqlEndpoint
from tpf_client.fragments.given_seconds import check_seconds
from tpf_client.fragments.transport import Limits
from tpf_client.planner.budget import Allowance


def _stream(**options: Any) -> object:
    with Client("http://server.test/d") as client:
        return client.stream("ASK { ?s ?p ?o }", **options)


def _endpoint(**options: Any) -> object:
    with Client("http://server.test/d") as client:
        return SparqlEndpoint(client, **options)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, 1e10, -1.0])
@pytest.mark.parametrize(
    ("takes", "name"),
    [
        *((_stream, name) for name in ("min_interval", "max_interval", "every", "keep_checking",
                                       "static_recheck", "jitter", "grace")),
        *((Limits, name) for name in ("connect_timeout", "read_timeout", "total_timeout",
                                      "backoff", "max_backoff", "max_query_seconds")),
        (Allowance, "seconds"),
        (_endpoint, "min_interval"),
    ],
)  # fmt: skip
def test_what_is_refused(takes: Callable[..., object], name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: .* seconds, not "):
        takes(**{name: value})


def test_what_is_taken() -> None:
    check_seconds(one=0, other=None, last=1e9)
    check_seconds(1, 2, one=1, other=2.0)
    with pytest.raises(ValueError, match=r"^one: 1 to 2 seconds, not 2\.5$"):
        check_seconds(1, 2, one=2.5)
