"""The list of datasets as a catalogue."""

from datetime import timedelta
from pathlib import Path

import pytest

from annotations.instants import format_instant
from annotations.labels import Expiration, Interval
from annotations.namespaces import DCAT, DCTERMS, DEFAULT_VOCABULARY, FOAF, LDES, TREE, VOID
from annotations.terms import Quad
from tests.support.served import BASE, NOON, Served, parse, quad
from tests.tpf_server.conftest import STATIC
from tpf_server.errors import SettingsError
from tpf_server.fragments.writers import WRITERS
from tpf_server.settings import DatasetSettings

EX = "http://example.org/"
LICENSE = "http://creativecommons.org/publicdomain/zero/1.0/"
DATASET = f"{BASE}trains#dataset"
ABOUT = {
    "title": "Trains", "description": "Where they are, \"now\"", "license": LICENSE,
}  # fmt: skip


def objects(rows: list[Quad], subject: str, predicate: str) -> list[str]:
    found = [
        r for r in rows if r.subject.strip("<>") == subject and r.predicate == f"<{predicate}>"
    ]
    return [row.object.strip("<>") for row in found]


def test_every_dataset_is_described(tmp_path: Path) -> None:
    dataset = {**ABOUT, "publisher": "http://agency.example/"}
    with Served(tmp_path, STATIC, dataset=dataset) as served:
        served.clock.advance_to(NOON + timedelta(minutes=1))
        facts = [(quad(f"t{n}", "delay", '"5"'), n) for n in (1, 2)]
        served.publish(*[(row, Expiration(NOON + timedelta(hours=n))) for row, n in facts])
        for media_type in [writer.media_types[0] for writer in WRITERS]:
            rows = parse(served.get("", media_type).content, media_type)
            (catalog,) = [row.subject for row in rows if row.object == f"<{DCAT}Catalog>"]
            assert objects(rows, catalog.strip("<>"), f"{DCAT}dataset") == [DATASET]
            assert objects(rows, DATASET, f"{DCTERMS}license") == [LICENSE]
            assert objects(rows, DATASET, f"{DCTERMS}publisher") == ["http://agency.example/"]
            assert objects(rows, DATASET, f"{DCTERMS}title") == ['"Trains"']
            assert objects(rows, DATASET, f"{DCTERMS}description") == [r'"Where they are, \"now\""']
            (modified,) = objects(rows, DATASET, f"{DCTERMS}modified")
            assert format_instant(NOON + timedelta(minutes=1)) in modified
            (count,) = objects(rows, DATASET, f"{VOID}triples")
            assert count.startswith(f'"{len(STATIC) + 2}"')
            places = objects(rows, DATASET, f"{DCAT}distribution")
            assert len(places) == len(WRITERS)
            for place in places:
                (url,) = objects(rows, place, f"{DCAT}accessURL")
                (kind,) = objects(rows, place, f"{DCAT}mediaType")
                answer = served.get(url.removeprefix(BASE))
                assert answer.headers["Content-Type"].partition(";")[0] in kind
                assert objects(rows, place, f"{DCTERMS}license") == [LICENSE]
            (service,) = objects(rows, catalog.strip("<>"), f"{DCAT}service")
            assert objects(rows, service, f"{DCAT}servesDataset") == [DATASET]
            (described,) = objects(rows, service, f"{DCAT}endpointDescription")
            assert served.get(described.removeprefix(BASE)).status_code == 200
        people = served.get("trains", "text/html").text
        assert f'rel="license" href="{LICENSE}"' in people
        assert "Where they are, " in people


def test_what_is_live_is_described(tmp_path: Path) -> None:
    settings = {"change_followers": 4}
    with Served(tmp_path, STATIC, settings=settings, dataset={"event_stream": 3600}) as served:
        hour = timedelta(hours=1)
        for n in range(3):
            served.publish((quad("t1", "delay", f'"{n}"'), Expiration(NOON + hour)))
        served.publish((quad("t1", "track", '"4"'), Interval(NOON, NOON + hour)))
        rows = parse(served.get("", "text/turtle").content, "text/turtle")
        tmp = DEFAULT_VOCABULARY.temporal
        assert sorted(objects(rows, DATASET, f"{tmp}labelling")) == ['"expiration"', '"interval"']
        assert integers(rows, DATASET, f"{tmp}dynamicTriples") == [2]
        assert integers(rows, DATASET, f"{tmp}updatesPerHour") == [4]
        parts = {}
        for part in objects(rows, DATASET, f"{VOID}propertyPartition"):
            (predicate,) = objects(rows, part, f"{VOID}property")
            names = (f"{VOID}triples", f"{tmp}dynamicTriples", f"{tmp}updatesPerHour")
            parts[predicate] = [integers(rows, part, name) for name in names]
            # It is the fragment of that predicate.
            assert predicate in served.get(part.removeprefix(BASE), "application/n-quads").text
        assert parts == {f"{EX}delay": [[1], [1], [3]], f"{EX}track": [[1], [1], [1]]}
        (changes,) = objects(rows, DATASET, f"{tmp}changes")
        (stream,) = [row.subject for row in rows if row.object == f"<{LDES}EventStream>"]
        (view,) = objects(rows, stream.strip("<>"), f"{TREE}view")
        assert served.get(view.removeprefix(BASE)).status_code == 200
        assert changes == f"{BASE}trains/changes"


def integers(rows: list[Quad], subject: str, predicate: str) -> list[int]:
    return [int(each.split('"')[1]) for each in objects(rows, subject, predicate)]


def test_pages_say_whose_they_are_where_it_is_set(tmp_path: Path, served: Served) -> None:
    page = served.page("trains")
    for name in ("description", "license", "publisher"):
        assert page.objects(DCTERMS + name) == []
    (tmp_path / "b").mkdir()
    with Served(tmp_path / "b", STATIC, dataset={**ABOUT, "publisher": "The agency"}) as named:
        page = named.page("trains")
        assert page.objects(f"{DCTERMS}license", DATASET) == [LICENSE]
        (publisher,) = page.objects(f"{DCTERMS}publisher", DATASET)
        assert page.objects(f"{FOAF}name", publisher) == ["The agency"]
        assert named.get("trains").headers["ETag"] != served.get("trains").headers["ETag"]


def test_void_finds_the_list(shared: Served) -> None:
    found = shared.get(".well-known/void", "text/turtle")
    assert (found.status_code, found.headers["Location"]) == (303, BASE)
    assert shared.post("", path=".well-known/void").status_code == 405


@pytest.mark.parametrize("license_", ["CC0", "http://a b/", "javascript:alert(1)", "http://x/<"])
def test_a_licence_is_an_iri(license_: str) -> None:
    with pytest.raises(SettingsError, match="license is not an IRI"):
        DatasetSettings(name="trains", license=license_)
