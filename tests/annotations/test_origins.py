"""Origins of texts that may be URLs."""

import pytest

from annotations.urls import origin_of


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://a.test:80/x?y#z", ("http", "a.test:80")),
        ("urn:x", ("urn", "")),
        ("", ("", "")),
        ("http://[x/", None),
        ("http://a\u2100b.org/", None),
    ],
)
def test_origins(url: str, origin: tuple[str, str] | None) -> None:
    assert origin_of(url) == origin
