"""A label vocabulary in a namespace of its own, served by the server."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from annotations.instants import format_instant
from annotations.labels import Expiration, Fact, Interval, Label
from annotations.methods import METHODS
from annotations.namespaces import RDF, RDF_TYPE, VOID
from annotations.terms import Quad
from tests.support.served import BASE, NOON, TMP, Served, parse, quad
from tpf_client import Client
from tpf_server.errors import SettingsError
from tpf_server.fragments.writers import WRITERS
from tpf_server.settings import DatasetSettings
from tpf_server.web import api_doc

OWN = {"vocabulary": f"{BASE}vocab/time#", "singleton_vocabulary": f"{BASE}singletons#"}
SOON = NOON + timedelta(minutes=1)
FACTS: list[tuple[Quad, Label]] = [
    (quad("t1", "delay", '"5"', "g"), Expiration(SOON)),
    (quad("t2", "delay", '"6"', "g"), Interval(NOON - timedelta(hours=1), SOON)),
    (quad("t3", "delay", '"7"', "g"), Interval(NOON, NOON + timedelta(seconds=5))),
]
QUERY = "SELECT ?d { GRAPH ?g { ?t <http://example.org/delay> ?d } }"
VIEWS = ["plain", *(method.name for method in METHODS)]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("own"), [], dataset=OWN) as served:
        served.publish(*FACTS)
        yield served


@pytest.mark.parametrize("view", VIEWS)
def test_pages_speak_it_alone(own: Served, view: str) -> None:
    text = own.get(f"trains/{view}", "application/n-quads").text
    assert "http://example.org/temporal#" not in text
    assert "http://example.org/singletonproperties#" not in text
    assert own.page(f"trains/{view}").objects(f"{VOID}vocabulary") == [OWN["vocabulary"]]


def test_the_default_one_is_not_named(served: Served) -> None:
    assert served.page("trains").objects(f"{VOID}vocabulary") == []


@pytest.mark.parametrize("view", ["", "/plain", "/named-graph"])
def test_our_client_follows_it(own: Served, view: str) -> None:
    with Client(f"{BASE}trains{view}", session=own.session, clock=own.clock) as client:
        stream = client.stream(QUERY, quiet=True)
        first = next(iter(stream))
        stream.close()
        assert sorted(str(row["d"]) for row in first.added) == ["5", "6", "7"]
        assert first.valid_until == NOON + timedelta(seconds=5)


def test_bodies_are_read_in_it(tmp_path: Path) -> None:
    with Served(tmp_path, [], dataset=OWN) as served:
        naming = served.app.extensions["tpf_server"].endpoints(BASE)["trains"].view.naming
        for number, method in enumerate(METHODS, 1):
            later = NOON + number * timedelta(minutes=1)
            rows = method.encode(Fact(FACTS[0][0], Expiration(later)), naming)
            body = "".join(" ".join(term for term in row if term) + " .\n" for row in rows)
            assert OWN["vocabulary"] in body
            assert served.post(body).status_code == 201
            page = served.page("trains/plain")
            assert page.objects(f"{OWN['vocabulary']}earliestExpiration") == [format_instant(later)]


def _names(file: str) -> set[str]:
    text = Path(api_doc.__file__).with_name("vocabularies").joinpath(f"{file}.ttl").read_text()
    return set(re.findall(r"^:(\w+) a rdf:Property", text, re.MULTILINE))


@pytest.mark.parametrize("media_type", [writer.media_types[0] for writer in WRITERS])
def test_the_server_serves_the_vocabularies(own: Served, media_type: str) -> None:
    for path, namespace, file, some in (
        ("vocab/time", OWN["vocabulary"], "time-labels", "expiration"),
        ("singletons", OWN["singleton_vocabulary"], "singleton-properties", "singletonPropertyOf"),
    ):
        names = _names(file)
        assert some in names
        rows = parse(own.get(path, media_type).content, media_type)
        found = {row.subject for row in rows if row[1:3] == (RDF_TYPE, f"<{RDF}Property>")}
        assert found == {f"<{namespace}{name}>" for name in names}
        page = own.get(path, "text/html").text
        assert all(f'id="{name}"' in page for name in names)
        assert f"{BASE}{path}" in own.get("api-doc").text
    assert own.request("POST", "singletons").status_code == 405


def test_every_term_of_the_pages_is_in_the_document(own: Served) -> None:
    spoken: set[str] = set()
    for view in VIEWS:
        rows = parse(
            own.get(f"trains/{view}", "application/n-quads").content, "application/n-quads"
        )
        for row in rows:
            spoken |= {term.strip("<>") for term in row if OWN["vocabulary"] in term}
    spoken.remove(OWN["vocabulary"])
    assert len(spoken) > 10
    assert spoken <= {OWN["vocabulary"] + name for name in _names("time-labels")}


def test_a_namespace_elsewhere_is_not_served(tmp_path: Path) -> None:
    with Served(tmp_path, [], dataset={"vocabulary": "http://other.example/t#"}) as served:
        assert served.get("t").status_code == 404
        assert served.page("trains").objects(f"{VOID}vocabulary") == ["http://other.example/t#"]
        assert TMP not in served.get("trains", "application/n-quads").text


@pytest.mark.parametrize("namespace", ["time", "http://e/time", "http://e/a b#", "urn:x#"])
def test_a_namespace_is_an_iri_that_names_can_follow(namespace: str) -> None:
    with pytest.raises(SettingsError, match="vocabulary is no IRI"):
        DatasetSettings(name="trains", vocabulary=namespace)
