"""Malformed URLs are errors of the package."""

from pathlib import Path

import pytest

from tpf_client.errors import OriginError, SourceError
from tpf_client.fragments.destinations import Destinations, not_a_url

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


NAMES = ("localhost", "127.0.0.1", "[::1]", "LocalHost")


@pytest.mark.parametrize("by", NAMES)
@pytest.mark.parametrize("there", NAMES)
def test_the_names_of_this_machine_are_one_origin(by: str, there: str) -> None:
    said = f"http://{there}:3000/trains?page=2"
    assert Destinations().led(f"http://{by}:3000/trains", said) == said
    for other in (f"http://{there}:3001/", f"http://{there}/", "http://127.0.0.2:3000/"):
        with pytest.raises(OriginError):
            Destinations().led(f"http://{by}:3000/trains", other)


@pytest.mark.parametrize("dataset", ["http://h.test/d", "https://h.test/d", "HTTPS://H.test/d"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_link_takes_credentials_out_of_tls(dataset: str, scheme: str) -> None:
    destinations = Destinations([dataset], headers={"Authorization": "Basic eA=="})
    link = destinations.led(dataset, f"{scheme}://h.test/d?page=2")
    safe = scheme == "https" or dataset.startswith("http:")
    assert bool(destinations.headers(link)) == safe
    assert not destinations.headers("https://other.test/d")


def test_an_origin_that_is_another_one_is_told_with_what_to_do() -> None:
    with pytest.raises(OriginError) as error:
        Destinations().template("http://trains.test/d", "http://10.0.0.1:3000/d{?s}")
    assert "if the server calls itself http://10.0.0.1:3000/, use that URL" in str(error.value)
    assert "--base-url" in str(error.value)
    assert "--allow-link" in str(error.value)


@pytest.mark.parametrize(
    ("template", "leads"),
    [
        ("http://trains.test/d{?s}", "http://trains.test/d{?s}"),
        ("http://trains.test{?s}", "http://trains.test{?s}"),
        ("http://trains.test{/s}", "http://trains.test{/s}"),
        ("http://trains.test?s={s}", "http://trains.test?s={s}"),
        ("{?s}", "http://trains.test/d{?s}"),
        ("d/{s}", "http://trains.test/d/{s}"),
        ("//trains.test/{s}", "http://trains.test/{s}"),
        ("http://trains.test{s}", None),
        ("http://trains.test:80{s}", None),
        ("HTTP://trains.test{+s}/d", None),
        ("//trains.test{s}", None),
    ],
)
def test_no_value_becomes_a_part_of_the_host(template: str, leads: str | None) -> None:
    if leads is not None:
        assert Destinations().template("http://trains.test/d", template) == leads
        return
    with pytest.raises(OriginError, match="what is no URL"):
        Destinations().template("http://trains.test/d", template)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("localhost:3000/trains", "http://localhost:3000/trains"),
        ("example.org/trains", "http://example.org/trains"),
        ("//example.org/trains", "http://example.org/trains"),
        ("[::1]:3000/trains", "http://[::1]:3000/trains"),
        ("trains", None),
        ("ftp://example.org/", None),
        ("SELECT * { ?s ?p ?o }", None),
        ("./data.nt", None),
    ],
)
def test_a_url_without_a_scheme_is_told_with_one(text: str, meant: str | None) -> None:
    said = not_a_url(text)
    assert said is not None
    assert said.startswith(f"not an http(s) URL: {text}")
    assert said.partition(" (try ")[2] == (f"{meant})" if meant else "")


def test_a_file_is_no_url_and_a_scheme_has_any_case(tmp_path: Path) -> None:
    file = tmp_path / "data.nt"
    file.touch()
    assert str(not_a_url(str(file))).endswith(f"(tpf-server {file} serves it at one)")
    assert str(not_a_url(str(tmp_path / "none.ttl"))).endswith("none.ttl, and no file")
    for name in ("none.ttl", "folder/none.nt.gz"):
        assert str(not_a_url(name)).endswith(f"{name}, and no file")
    assert str(not_a_url("host.example/none.ttl")).endswith("(try http://host.example/none.ttl)")
    assert not_a_url("HTTP://127.0.0.1:3000/data") is None
