import json
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pyoxigraph as ox
import pytest

from annotations.labels import Expiration, Interval
from annotations.methods import method_named
from annotations.terms import Quad, Term
from loaders.dynamic import naming_of
from loaders.errors import InputError
from loaders.stream.records import CsvRecords, Document, RdfRecords
from tests.support.oracle import quad_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
URL = "http://server.test/sensors"
METADATA: dict[str, Any] = {
    "url": "sensors.csv",
    "tableSchema": {
        "aboutUrl": "http://e/{id}",
        "columns": [
            {"name": "id", "suppressOutput": True},
            {"name": "at", "suppressOutput": True, "datatype": "dateTime"},
            {"name": "value", "datatype": "integer", "propertyUrl": "http://e/value"},
        ],
    },
}
CSV = "id,at,value\na,2026-01-01T10:00:00Z,1\nb,2026-01-01T11:00:00Z,2\n"


def value(name: str, number: int) -> Quad:
    text = f'"{number}"^^<http://www.w3.org/2001/XMLSchema#integer>'
    return Quad(Term(f"<http://e/{name}>"), Term("<http://e/value>"), Term(text))


def quads(body: str) -> list[Quad]:
    return [quad_of(quad) for quad in ox.parse(body.encode(), format=ox.RdfFormat.N_QUADS)]


def test_rdf_of_any_format() -> None:
    records = RdfRecords(HOUR)
    turtle = Document("a.ttl", NOON, "@prefix e: <http://e/> . e:a e:value 1 .")
    assert quads(records.batch(turtle).body) == [value("a", 1)]
    assert records.batch(turtle).label == Expiration(NOON + HOUR)
    assert RdfRecords(HOUR, "interval").batch(turtle).label == Interval(NOON, NOON + HOUR)
    message = Document("topic-0-7", NOON, '<http://e/a> <http://e/b> "c" .\n')
    assert RdfRecords(None).batch(message) == (message.text, None, 1)
    named = RdfRecords(HOUR, suffix="ttl")
    assert quads(named.batch(message._replace(text=turtle.text)).body) == [value("a", 1)]
    assert named.batch(message._replace(name="a.nq")).facts == 1
    with pytest.raises(InputError, match=r"a\.nt, line 2: "):
        records.batch(Document("a.nt", NOON, "<http://e/a> <http://e/b> <http://e/c> .\nbad\n"))


def test_rows_from_the_instant_of_their_record() -> None:
    records = CsvRecords(METADATA, "m.json", URL, HOUR)
    batch = pickle.loads(pickle.dumps(records)).batch(Document("x.csv", NOON, CSV))
    assert quads(batch.body) == [value("a", 1), value("b", 2)]
    assert (batch.label, batch.facts) == (Expiration(NOON + HOUR), 2)


def test_rows_from_their_own_instants() -> None:
    records = CsvRecords(METADATA, "m.json", URL, HOUR, "at", "interval")
    batch = records.batch(Document("x.csv", NOON, CSV))
    assert (batch.label, batch.facts) == (None, 2)
    facts = method_named("rdf-1.2").decode(quads(batch.body), naming_of(URL))
    ten = NOON - 2 * HOUR
    assert sorted(facts) == [
        (value("a", 1), Interval(ten, ten + HOUR)),
        (value("b", 2), Interval(ten + HOUR, ten + 2 * HOUR)),
    ]
    # A column without name goes by its title, or by its name in templates.
    described = json.loads(json.dumps(METADATA).replace('"name": "at"', '"titles": "Seen at"'))
    document = Document("x.csv", NOON, CSV.replace("at", "Seen at"))
    for at in ("Seen at", "Seen%20at"):
        records = CsvRecords(described, "m.json", URL, HOUR, at, "interval")
        assert records.batch(document) == batch


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace("10:00", "25:00"), r"x\.csv, line 2"),
        (CSV.replace(",1\n", ",one\n"), r"x\.csv, line 2"),
        ("id,value\na,1\n", r"x\.csv, line 1: no column 'at'"),
    ],
)
def test_what_does_not_fit_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CsvRecords(METADATA, "m.json", URL, HOUR, "at").batch(Document("x.csv", NOON, text))


def test_json_with_relative_iris_is_refused() -> None:
    whole = Document("a.jsonld", NOON, '{"@id": "http://e/a", "http://e/value": 1}')
    assert quads(RdfRecords(HOUR).batch(whole).body) == [value("a", 1)]
    relative = Document("a.jsonld", NOON, '{"@id": "a", "http://e/value": 1}')
    with pytest.raises(InputError, match=r"a\.jsonld: a relative IRI: 'a'"):
        RdfRecords(HOUR).batch(relative)


def test_rows_at_the_end_of_time() -> None:
    last = Document("x.csv", NOON, "id,at,value\na,9999-12-31T23:59:59Z,1\n")
    for labelling in ("expiration", "interval"):
        batch = CsvRecords(METADATA, "m.json", URL, HOUR, "at", labelling).batch(last)
        (fact,) = method_named("rdf-1.2").decode(quads(batch.body), naming_of(URL))
        assert fact.label is not None
        assert fact.label.end == datetime.max.replace(tzinfo=UTC)
    beyond = last._replace(text=last.text.replace("59Z", "59.999999Z"))
    with pytest.raises(InputError, match=r"x\.csv, line 2: no instant in the column at"):
        CsvRecords(METADATA, "m.json", URL, HOUR, "at", "interval").batch(beyond)


def test_a_mapping_of_several_tables_is_refused() -> None:
    with pytest.raises(InputError, match="several tables"):
        CsvRecords({"tables": [METADATA, METADATA | {"url": "b"}]}, "m.json", URL, HOUR)
