"""NGSI-LD entities in their three forms, and notifications of them."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from annotations.terms import Quad
from loaders.errors import InputError
from loaders.sources import ngsi_ld
from loaders.sources.ngsi_ld import DEFAULT_CONTEXT, NgsiLd, reader_of_json
from tpf_server.store.static.ox_terms import read_quads

CORE = "https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context-v1.8.jsonld"
BUS = "urn:ngsi-ld:Vehicle:bus7"
NORMALISED = {
    "id": BUS, "type": "Vehicle",
    "speed": {
        "type": "Property", "value": 55, "unitCode": "KMH", "observedAt": "2026-01-05T07:00:00Z",
    },
    "location": {"type": "GeoProperty", "value": {"type": "Point", "coordinates": [3.725, 51.05]}},
    "driver": {"type": "Relationship", "object": "urn:ngsi-ld:Person:ann"},
    "label": {"type": "LanguageProperty", "languageMap": {"nl": "bus", "en": "coach"}},
    "seen": {"type": "Property", "value": {"@type": "DateTime", "@value": "2026-01-05T07:00:00Z"}},
    "address": {"type": "Property", "value": {"b": 1, "a": "x"}},
    "@context": [CORE],
}  # fmt: skip
SAID = {
    "rdf:type <Vehicle>",
    'speed "55"^^integer',
    'lat "51.0500000"^^decimal',
    'long "3.7250000"^^decimal',
    "driver <urn:ngsi-ld:Person:ann>",
    'label "bus"@nl',
    'label "coach"@en',
    'seen "2026-01-05T07:00:00Z"^^dateTime',
    'address "{\\"a\\":\\"x\\",\\"b\\":1}"^^JSON',
}


def said(document: Any, context: Path | None = None) -> set[str]:
    """Return the facts of the bus, in short."""
    found = set()
    for subject, predicate, value, _ in NgsiLd(context).read(json.dumps(document).encode(), "d"):
        assert subject == f"<{BUS}>"
        text = f"{predicate} {value}"
        for long, short in (
            ("<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>", "rdf:type"),
            (f"<{DEFAULT_CONTEXT}", "<"),
        ):
            text = text.replace(long, short)
        name, rest = text.split(" ", 1)
        stated, _, datatype = rest.partition("^^<")
        kind = f"^^{datatype[:-1].rpartition('#')[2]}" if datatype else ""
        short = name if name == "rdf:type" else name[1:-1].rpartition("#")[2]
        found.add(f"{short} {stated}{kind}")
    return found


def concise(attribute: Any) -> Any:
    """An attribute without its type."""
    return {k: v for k, v in attribute.items() if k != "type"} if "type" in attribute else attribute


def test_the_normalised_and_the_concise_form() -> None:
    assert said(NORMALISED) == SAID
    short = {k: concise(v) if isinstance(v, dict) else v for k, v in NORMALISED.items()}
    assert said([short]) == SAID


def test_the_simplified_form() -> None:
    simple = {
        "id": BUS, "type": "Vehicle", "speed": 55, "address": {"b": 1, "a": "x"},
        "location": {"type": "Point", "coordinates": [3.725, 51.05]}, "free": True, "none": None,
    }  # fmt: skip
    gone = ("driver", "label", "seen")
    assert said(simple) == {line for line in SAID if not line.startswith(gone)} | {
        'free "true"^^boolean'
    }


def test_several_instances_and_several_values() -> None:
    both = {
        "id": BUS, "type": ["Vehicle", "Bus"],
        "speed": [{"type": "Property", "value": 1}, {"type": "Property", "value": 2,
                                                     "datasetId": "urn:x:gps"}],
        "lines": {"type": "Property", "value": ["a", "b"]},
        "stops": {"type": "Relationship", "object": ["urn:s:1", "urn:s:2"]},
        "gone": {"type": "Property", "value": "urn:ngsi-ld:null"},
        "untold": {"type": "LanguageProperty", "languageMap": {"@none": "urn:ngsi-ld:null"}},
        "empty": {"type": "JsonProperty", "json": "urn:ngsi-ld:null"},
        "modifiedAt": "2026-01-05T07:00:00Z",
    }  # fmt: skip
    assert said(both) == {
        "rdf:type <Vehicle>", "rdf:type <Bus>", 'speed "1"^^integer', 'speed "2"^^integer',
        'lines "a"', 'lines "b"', "stops <urn:s:1>", "stops <urn:s:2>",
    }  # fmt: skip


def test_texts_in_languages() -> None:
    texts = {"en_GB": ["coach", "bus", None], "no tag": "buss", "fr": None, "@none": "x"}
    entity = {"id": BUS, "type": "Vehicle", "label": {"languageMap": texts}}
    assert said(entity) == {
        "rdf:type <Vehicle>", 'label "coach"@en-gb', 'label "bus"@en-gb', 'label "buss"',
        'label "x"',
    }  # fmt: skip


def test_names_that_no_iri_may_have(tmp_path: Path) -> None:
    entity = {"id": BUS, "type": ["City Bus"], "free seats": 3, "free {x}": {"vocab": "none"}}
    assert said(entity) == {
        "rdf:type <City%20Bus>", 'free%20seats "3"^^integer', "free%20%7Bx%7D <none>",
    }  # fmt: skip
    terms = {"free seats": "http://e/#free", "City Bus": "http://e/Bus"}
    file = tmp_path / "context.json"
    file.write_text(json.dumps({"@context": terms}))
    del entity["free {x}"]
    expected = {"rdf:type <http://e/Bus>", 'free "3"^^integer'}
    assert said(entity, file) == said({**entity, "@context": [CORE, terms]}) == expected


def test_of_several_places_none_is_lost() -> None:
    places: list[Any] = [{"value": {"type": "Point", "coordinates": [n, n]}} for n in (1, 2)]
    places[0]["datasetId"] = "urn:x:gps"
    assert said({"id": BUS, "type": "Vehicle", "location": places}) == {
        "rdf:type <Vehicle>", 'lat "2.0000000"^^decimal', 'long "2.0000000"^^decimal',
        'https://uri.etsi.org/ngsi-ld/location "{\\"coordinates\\":[1,1],\\"type\\":\\"Point\\"}"'
        "^^geoJSONLiteral",
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        {"id": "bus7", "type": "Vehicle"},
        {"id": BUS, "type": 7},
        {"id": BUS, "type": "Vehicle", "label": {"languageMap": {"en": 7}}},
        {"id": BUS, "type": "Vehicle", "@context": "http://elsewhere/c.jsonld"},
    ],
)
def test_a_malformed_entity_is_an_error_with_what_the_others_say(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"^d: ") as caught:
        said([NORMALISED, wrong])
    assert list(caught.value.rest) == NgsiLd().read(json.dumps(NORMALISED).encode(), "d")


@pytest.mark.parametrize(
    "value", [{"@type": "a b", "@value": 3}, {"@type": "DateTime", "@value": None}]
)
def test_a_typed_value_that_is_none_is_json(value: Any) -> None:
    (line,) = said({"id": BUS, "type": [], "p": {"value": value}})
    assert line.endswith("^^JSON")


def test_names_of_a_context(tmp_path: Path) -> None:
    file = tmp_path / "context.json"
    file.write_text(json.dumps({"@context": {"speed": "http://e/#v", "Vehicle": "http://e/Bus"}}))
    entity = {"id": BUS, "type": "Vehicle", "speed": 5, "@context": "http://elsewhere/c.jsonld"}
    assert said(entity, file) == {"rdf:type <http://e/Bus>", 'v "5"^^integer'}
    with pytest.raises(InputError, match=r"a context at 'http://elsewhere/c\.jsonld'"):
        said(entity)
    own = {**entity, "@context": [CORE, {"speed": "http://e/#w"}]}
    assert said(own) == {"rdf:type <Vehicle>", 'w "5"^^integer'}


def test_terms_of_a_vocabulary() -> None:
    entity = {
        "id": BUS, "type": "Vehicle",
        "kind": {"type": "VocabProperty", "vocab": ["tram", "urn:ngsi-ld:null"]},
        "ex:fuel": [{"vocab": "ex:gas"}, {"vocab": "none", "datasetId": "urn:x:y"}],
    }  # fmt: skip
    own = {"tram": "http://e/Tram", "kind": "http://e/#kind", "ex": "http://e/#"}
    fuel = {"fuel <http://e/#gas>", "fuel <none>"}
    expected = {"rdf:type <Vehicle>", "kind <http://e/Tram>", *fuel}
    assert said({**entity, "@context": own}) == expected
    assert said({**notification(entity), "@context": own}) == expected
    with pytest.raises(InputError, match="without terms"):
        said({**entity, "kind": {"vocab": 7}})


def notification(*entities: Any, at: str = "2026-01-05T07:00:00Z") -> Any:
    return {
        "id": "urn:ngsi-ld:Notification:1", "type": "Notification", "notifiedAt": at,
        "subscriptionId": "urn:ngsi-ld:Subscription:1", "data": list(entities),
    }  # fmt: skip


def test_notifications() -> None:
    gone = {"id": "urn:ngsi-ld:Vehicle:old", "type": "Vehicle", "deletedAt": "2026-01-05T07:00:00Z"}
    told = {**notification(NORMALISED, gone), "@context": CORE}
    assert said(told) == SAID
    assert said(notification()) == set()
    at = NgsiLd().instant(json.dumps(told).encode(), "d")
    assert at == datetime(2026, 1, 5, 7, tzinfo=UTC)
    with pytest.raises(InputError, match="of no instant: 'soon'"):
        NgsiLd().instant(json.dumps(notification(at="soon")).encode(), "d")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[NaN]", "NaN is no number"),
        ("1", "no entity of NGSI-LD"),
        ('{"id": "bus7", "type": "Vehicle"}', "an id that is a URI"),
        ('{"id": "urn:a:b"}', "no entity of NGSI-LD"),
        ('{"type": "Notification", "data": 7}', "no entity of NGSI-LD"),
        ('{"id":"urn:a:b","type":"A","p":{"type":"Relationship","object":7}}', "without an object"),
        ('{"id":"urn:a:b","type":"A","p":{"languageMap":7}}', "without languages"),
        ('{"id":"urn:a:b","type":"A","p":{"object":"1:2"}}', "without an object"),
        ('{"id":"urn:a:b","type":"A","@context":{"@vocab":null}}', "a relative IRI: 'A'"),
        ('{"id":"1:2","type":"A"}', "an id that is a URI"),
        ('{"id":"/a:b","type":"A"}', "an id that is a URI"),
        ('{"id":"urn:a:b","type":"A","p":1e999}', "1e999 is too large"),
        ("[" * 1000 + "]" * 1000, "nested more than 100"),
    ],
)
def test_what_is_no_entity(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=r"^d") as caught:
        NgsiLd().read(text.encode(), "d")
    assert reason in str(caught.value)


FEED = "http://feed.test/entities"
OWN = {"speed": "http://own.test/speed"}
AROUND = {"speed": "http://around.test/speed", "heading": "http://around.test/heading"}
GIVEN = {"speed": "http://given.test/speed", "label": "http://given.test/label"}


def entity(number: int, chance: random.Random) -> dict[str, Any]:
    """An entity with attributes, and a context if given."""
    contexts: list[dict[str, Any]] = [{}, {}, {"@context": OWN}, {"@context": [CORE, OWN]},
                                      {"@context": []}]  # fmt: skip
    attributes: dict[str, Any] = {
        name: {"value": chance.randrange(9)}
        for name in ("speed", "heading", "label", "weight")
        if chance.random() < 0.7
    }
    return {"id": f"{BUS}{number}", "type": "Vehicle", **attributes, **chance.choice(contexts)}


@pytest.mark.parametrize("given", [None, GIVEN], ids=["no context given", "a context given"])
@pytest.mark.parametrize("seed", range(10))
def test_entities_say_together_what_each_says_alone(
    tmp_path: Path, given: dict[str, str] | None, seed: int
) -> None:
    chance = random.Random(seed)
    file = None
    if given is not None:
        file = tmp_path / "context.jsonld"
        file.write_text(json.dumps({"@context": given}))
    around: dict[str, Any] = chance.choice([{}, {"@context": AROUND}, {"@context": [AROUND, CORE]}])
    entities = [entity(number, chance) for number in range(chance.randrange(6))]

    def read(data: list[dict[str, Any]]) -> set[Quad]:
        document = {"type": "Notification", "id": "urn:n", "data": data, **around}
        return set(NgsiLd(file).read(json.dumps(document).encode(), "d"))

    together = read(entities)
    assert together == {quad for each in entities for quad in read([each])}
    predicates = {quad.predicate for quad in together}
    assert entities == [] or predicates
    if file is None:
        return
    plain = [{"@id": each["id"], "speed": n, "@context": AROUND} for n, each in enumerate(entities)]
    reader = reader_of_json(file)
    alone = {quad for each in plain for quad in reader(json.dumps(each).encode(), FEED)}
    assert set(reader(json.dumps(plain).encode(), FEED)) == alone
    assert len(alone) == len(plain)


@pytest.mark.parametrize("kind", ["around", "given", "own", "json"])
def test_a_context_is_written_once_however_many_entities_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    written: list[int] = []

    def counted(content: bytes, *arguments: Any, **options: Any) -> Iterator[Quad]:
        written.append(len(content))
        return read_quads(content, *arguments, **options)

    monkeypatch.setattr(ngsi_ld, "read_quads", counted)
    terms = {f"name{number}": f"http://around.test/{number}" for number in range(300)}
    file = tmp_path / "context.jsonld"
    file.write_text(json.dumps({"@context": terms}))
    given = file if kind in ("given", "json") else None
    entities = [{"id": f"{BUS}{number}", "type": "Vehicle", "name1": 1} for number in range(300)]
    document: Any = entities
    if kind == "around":
        document = {"type": "Notification", "data": entities, "@context": terms}
    elif kind == "own":
        document = [{**each, "@context": {}} for each in entities] + [
            {"id": f"{BUS}x", "type": "Vehicle", "name1": 1, "@context": terms}
        ]
    elif kind == "json":
        document = [{"@id": each["id"], "name1": 1} for each in entities]
    content = json.dumps(document).encode()
    read = reader_of_json(given) if kind == "json" else NgsiLd(given).read
    assert len(read(content, FEED)) >= 300
    assert sum(written) < 3 * (len(content) + file.stat().st_size)
