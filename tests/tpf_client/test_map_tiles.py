"""Tile URLs of the map, and its content security policy."""

import pytest

from tpf_client.errors import ClientError, MapTilesError
from tpf_client.map_tiles import MapTiles, map_tiles

OURS = "the city's own"


@pytest.mark.parametrize(
    ("template", "origin"),
    [
        ("https://tiles.example.org/{z}/{x}/{y}.png", "https://tiles.example.org"),
        ("http://127.0.0.1:8080/t?z={z}&x={x}&y={y}&again={z}", "http://127.0.0.1:8080"),
        ("HTTPS://A-1.example/%7B{z}%7D/{y}/{x}", "https://A-1.example"),
    ],
)
def test_the_origin_is_scheme_host_and_port(template: str, origin: str) -> None:
    tiles = map_tiles(template, OURS)
    assert tiles == MapTiles(template, OURS)
    assert tiles.origin == origin


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("ftp://e.org/{z}/{x}/{y}", "no http"),
        ("javascript:alert('{z}{x}{y}')", "no http"),
        ("https://e.org/{z}/{x}\n/{y}", "no http"),
        ("https://bücher.example/{z}/{x}/{y}", "no http"),
        ("https://e.org/{z}/{x}#{y}", "no http"),
        ("https://e.org/{z}/{x}", "no {y}"),
        ("https://e.org/{Z}/{x}/{y}", "no {z}"),
        ("https://e.org/{z}/{x}/{y}{r}", "for {r}"),
        ("https://e.org/{z}/{x}/{y}{}", "for {}"),
        ("https://{s}.e.org/{z}/{x}/{y}", "name the host"),
        ("https://e.org;script-src/{z}/{x}/{y}", "name the host"),
        ("https://e.org,*/{z}/{x}/{y}", "name the host"),
        ("https://*/{z}/{x}/{y}", "name the host"),
        ("https://[::1]/{z}/{x}/{y}", "name the host"),
        ("https://e.org:/{z}/{x}/{y}", "name the host"),
        ("https://e.org:0/{z}/{x}/{y}", "name the host"),
        ("https://e.org:65536/{z}/{x}/{y}", "no URL"),
        ("https://[e.org/{z}/{x}/{y}", "no URL"),
        ("https://a.org\\.e.org/{z}/{x}/{y}", "name the host"),
        ("https://me:secret@e.org/{z}/{x}/{y}", "who logs in"),
    ],
)
def test_what_browsers_cannot_be_sent_to_is_refused(template: str, reason: str) -> None:
    with pytest.raises(MapTilesError) as caught:
        map_tiles(template, OURS)
    assert reason in str(caught.value)
    assert repr(template) in str(caught.value)
    assert isinstance(caught.value, ClientError)


def test_whose_they_are_is_said() -> None:
    template = "https://e.org/{z}/{x}/{y}"
    for attribution in ("", "  ", "a\nb", "a\u202eb"):
        with pytest.raises(MapTilesError) as caught:
            map_tiles(template, attribution)
        assert repr(attribution) in str(caught.value)
    assert map_tiles("", "") is None
    with pytest.raises(MapTilesError, match=OURS):
        map_tiles("", OURS)
