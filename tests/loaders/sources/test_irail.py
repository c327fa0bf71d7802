import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pyoxigraph as ox
import pytest

from annotations.terms import Quad, Term
from loaders.errors import InputError
from loaders.sources.irail import Irail, from_millis, read_liveboard
from loaders.vocabulary import CANCELLED
from tests.loaders.commands.test_polling import DEPARTURE, listed
from tests.loaders.recordings import entry, irail_recording, write_directory, write_zip

T = "http://example.org/train#"
POLLS = {
    1417772214687: [entry("a", "300", "4"), entry("b", "cancel", "")],
    1417772274687: [entry("a", "600", ""), entry("c")],
    1417772394687: [],
    1417772454687: [entry("c", "60", "2")],
}


def subject(name: str) -> Term:
    return Term(f"<http://irail.be/stations/NMBS/008892007/departures/{name}>")


@pytest.fixture(params=["directory", "zip"])
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "zip":
        return write_zip(tmp_path / "day.zip", POLLS)
    return write_directory(tmp_path / "day", POLLS)


def test_static_facts_of_every_departure_once(recording: Path) -> None:
    source = Irail(recording)
    triples = [triple for piece in source.pieces(1) for triple in source.quads(piece)]
    assert len(triples) == len(set(triples)) == 3 * 5
    for count in (2, 3, 100):
        assert {each for piece in source.pieces(count) for each in source.quads(piece)} == set(
            triples
        )
    a = {predicate: term for s, predicate, term, _ in triples if s == subject("a")}
    assert a == {
        "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>": f"<{T}Departure>",
        f"<{T}routeLabel>": '"IC a"',
        f"<{T}headSign>": '"To a"',
        f"<{T}departureTime>": '"2014-12-05T20:46:00+01:00"'
        "^^<http://www.w3.org/2001/XMLSchema#dateTime>",
        f"<{T}stop>": "<http://irail.be/stations/NMBS/008892007>",
    }


def test_batches_hold_until_the_next_poll(recording: Path) -> None:
    batches = list(Irail(recording).batches(None, None))
    assert [batch.at for batch in batches] == [from_millis(poll) for poll in POLLS]
    # After the last poll comes the most frequent gap.
    ends = [1417772274687, 1417772394687, 1417772454687, 1417772514687]
    assert [batch.until for batch in batches] == [from_millis(end) for end in ends]
    assert set(batches[0].quads) == {
        Quad(
            subject("a"),
            Term(f"<{T}delay>"),
            Term('"300"^^<http://www.w3.org/2001/XMLSchema#integer>'),
        ),
        Quad(subject("a"), Term(f"<{T}platform>"), Term('"4"')),
        Quad(subject("b"), Term(f"<{T}status>"), Term('"cancelled"')),
    }
    assert {(q.subject, q.predicate) for q in batches[1].quads} == {
        (subject("a"), f"<{T}delay>"),
        (subject("c"), f"<{T}delay>"),
        (subject("c"), f"<{T}platform>"),
    }
    assert batches[2].quads == ()


def test_a_span_is_cut_out(recording: Path) -> None:
    source = Irail(recording)
    start, until = from_millis(1417772274687), from_millis(1417772454687)
    batches = list(source.batches(start, until))
    assert [batch.at for batch in batches] == [start, from_millis(1417772394687)]
    assert batches[-1].until == until
    span = source.span(start, until)
    assert span is not None
    assert (span.start, span.end, span.polls) == (start, until, 2)
    assert source.span(until.replace(year=2020), None) is None


def test_departures_outside_the_wanted_hours_are_left_out(tmp_path: Path) -> None:
    polls = {
        1417772214687: [
            entry("a", scheduledDepartureTime="2014-12-05T20:59:59+01:00"),
            entry("b", scheduledDepartureTime="2014-12-05T21:00:00+01:00"),
            entry("c", scheduledDepartureTime="2014-12-05T22:00:00+01:00"),
        ]
    }
    path = write_directory(tmp_path / "day", polls)
    source = Irail(
        path, datetime(2014, 12, 5, 20, tzinfo=UTC), datetime(2014, 12, 5, 21, tzinfo=UTC)
    )
    triples = [t for piece in source.pieces(1) for t in source.quads(piece)]
    assert {t.subject for t in triples} == {subject("b")}


def test_the_recorded_day_in_full() -> None:
    path = irail_recording()
    source = Irail(path)
    batches = list(source.batches(None, None))
    lines = (f"{q.subject} {q.predicate} {q.object} ." for b in batches[:200] for q in b.quads)
    parsed = {str(quad.object) for quad in ox.parse("\n".join(lines), ox.RdfFormat.N_TRIPLES)}
    assert parsed == {q.object for b in batches[:200] for q in b.quads}
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".dat"))
        documents = [json.loads(archive.read(name))["@graph"] for name in names]
    assert len(batches) == len(documents) == 1284
    for batch, graph in zip(batches, documents, strict=True):
        delayed = sum(departure["delay"] != "cancel" for departure in graph)
        platforms = sum(departure["platform"] != "" for departure in graph)
        assert len(batch.quads) == len(graph) + platforms
        assert sum(q.predicate == f"<{T}delay>" for q in batch.quads) == delayed
    subjects = {departure["@id"] for graph in documents for departure in graph}
    triples = [t for piece in source.pieces(1) for t in source.quads(piece)]
    assert len(triples) == 5 * len(subjects)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"@graph": [', "not JSON"),
        ("[]", "no @graph"),
        ('{"@graph": 3}', "no @graph"),
        ('{"departures": {"departure": null}}', "no list of departures"),
        ('{"departures": {"departure": 7}}', "no list of departures"),
        ('{"departures": {"departure": {"id": "0"}}}', "no list of departures"),
        (json.dumps({"@graph": [entry("a", headsign="\ud800")]}), "not JSON"),
        (json.dumps({"@graph": [entry("a", delay="soon")]}), "malformed departure"),
        (json.dumps({"@graph": [entry("a", scheduledDepartureTime="20:46")]}), "malformed"),
        (json.dumps({"@graph": [entry("a", headsign=None)]}), "malformed"),
        (json.dumps({"@graph": [entry("a b c <")]}), "malformed"),
        (json.dumps({"@graph": ["a"]}), "malformed"),
        (json.dumps({"@graph": [{"@id": "http://example.org/a"}]}), "a departure without"),
    ],
)
def test_malformed_documents_are_named(tmp_path: Path, content: str, message: str) -> None:
    path = write_directory(tmp_path / "day", {1417772214687: []})
    (path / "data" / "1417772214688.dat").write_text(content)
    with pytest.raises(InputError, match=f"1417772214688.dat.*{message}"):
        list(Irail(path).batches(None, None))


@pytest.mark.parametrize(
    ("value", "cancelled"),
    [(False, False), (None, False), (0, False), ("0", False), ("false", False), ("", False),
     (True, True), (1, True), ("1", True), ("true", True)],
)  # fmt: skip
def test_what_the_api_calls_cancelled(value: object, cancelled: bool) -> None:
    board = listed("60")
    (said,) = board["departures"]["departure"]
    said |= {"canceled": value, "platform": None, "vehicleinfo": None}
    quads = read_liveboard(json.dumps(board).encode(), "d")
    assert (Quad(Term(f"<{DEPARTURE}>"), Term(f"<{T}status>"), CANCELLED) in quads) == cancelled
    assert (Term(f"<{T}delay>") in {quad.predicate for quad in quads}) != cancelled


def test_a_malformed_departure_is_an_error_with_what_the_others_say() -> None:
    board = listed("60")
    good = read_liveboard(json.dumps(board).encode(), "d")
    board["departures"]["departure"] += [{"time": 0}, 7]
    with pytest.raises(InputError, match=r"^d: a departure without .* \(and 1 more\)") as caught:
        read_liveboard(json.dumps(board).encode(), "d")
    assert caught.value.rest == good


def test_a_directory_that_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no liveboard"):
        Irail(tmp_path)
