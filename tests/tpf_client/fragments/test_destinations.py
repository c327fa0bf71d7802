"""Texts that are no URLs are errors of the package, whoever says them."""

import pytest

from tpf_client.errors import OriginError, SourceError
from tpf_client.fragments.destinations import Destinations

URL = "http://server.test/"


@pytest.mark.parametrize(
    "text",
    ["x://[é", "localhost://xn--é..]", "xn--://[]é", "http://é[x/", "http://[x/", "http://[é]:x/"],
)
def test_what_is_no_url(text: str) -> None:
    with pytest.raises(SourceError, match="not a URL"):
        Destinations(allowed=[text])
    with pytest.raises(SourceError, match="not a URL"):
        Destinations().named(text)
    for leads in (Destinations().led, Destinations().template):
        with pytest.raises(OriginError, match="what is no URL"):
            leads(URL, text)
