from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyoxigraph as ox
import pytest

from annotations.terms import Quad
from loaders.errors import InputError
from loaders.sources.citybench import SERVICES, CityBench
from tests.support.oracle import solutions_of

REAL = Path(__file__).parents[3].parent / "shared" / "data" / "citybench"

REPOSITORY = """
@prefix : <http://www.insight-centre.org/dataset/SampleEventService#> .
@prefix ssn: <http://purl.oclc.org/NET/ssnx/ssn#> .
@prefix ct: <http://www.insight-centre.org/citytraffic#> .
@prefix up: <http://www.ict-citypulse.eu/ontologies/userprofile#> .
:AarhusTrafficData1 ssn:observes :p1, :p2, :p3, :p9 .
:p1 a ct:CongestionLevel ; ssn:isPropertyOf :road .
:p2 a ct:EstimatedTime ; ssn:isPropertyOf :road .
:p3 a ct:AvgSpeed ; ssn:isPropertyOf :road .
:p9 a ct:Smell .
:road ct:hasStartLatitude 56.0 ; ct:hasStartLongitude 10.0 ;
    ct:hasEndLatitude 56.001 ; ct:hasEndLongitude 10.0 .
:AarhusWeatherData0 ssn:observes :w1, :w2 .
:w1 a ct:Temperature . :w2 a ct:Humidity .
:AarhusPollutionData7 ssn:observes :a . :a a ct:API .
:AarhusParkingDataX ssn:observes :v . :v a ct:ParkingVacancy .
:UserLocationService ssn:observes :l . :l a ct:Location ; ssn:isPropertyOf up:u .
"""
FILES = {
    "AarhusTrafficData1": "avgMeasuredTime,avgSpeed,TIMESTAMP,vehicleCount\n"
    "9,50,2014-08-01T07:00:00,11\n9,0,2014-08-01T07:05:00,2\n",
    "AarhusWeatherData0": "hum,tempm,TIMESTAMP\n56,18,2014-08-01T07:00:00\n"
    ",18.5,2014-08-01T07:20:00\n",
    "AarhusPollutionData7": "ozone,particullate_matter,carbon_monoxide,sulfure_dioxide,"
    "nitrogen_dioxide,timestamp\n64,39,47,99,35,2014-08-01 07:05:00\n",
    "AarhusParkingDataX": "vehiclecount,updatetime,_id,totalspaces\n"
    "115,2014-08-01 07:01:00.145,7,210\n",
    "UserLocationService": "http://e/u|56.5,10.25\nhttp://e/u|56.6,10.5",
}
SEVEN = datetime(2014, 8, 1, 7, tzinfo=UTC)


@pytest.fixture
def city(tmp_path: Path) -> Path:
    (tmp_path / "static").mkdir()
    (tmp_path / "streams").mkdir()
    (tmp_path / "static" / "SensorRepository.n3").write_text(REPOSITORY)
    (tmp_path / "static" / "AarhusCulturalEvents.n3").write_text(
        '[] <http://purl.oclc.org/NET/sao/value> "a concert" .'
    )
    for name, text in FILES.items():
        (tmp_path / "streams" / f"{name}.csv").write_text(text)
    return tmp_path


def values(quads: tuple[Quad, ...]) -> dict[str, str]:
    """The values of observations by the local names of their properties."""
    said: dict[tuple[str, str], str] = {(q.subject, q.predicate): q.object for q in quads}
    local = {}
    for (subject, predicate), value in said.items():
        if predicate.endswith("hasValue>"):
            observed = said[subject, "<http://purl.oclc.org/NET/ssnx/ssn#observedProperty>"]
            local[observed.removeprefix(f"<{SERVICES}").removesuffix(">")] = value.split("^^")[0]
    return local


def test_what_a_sensor_observes_becomes_observations(city: Path) -> None:
    first, second = CityBench(city).readings("AarhusTrafficData1", None, None)
    assert (first.at, second.at) == (SEVEN, SEVEN + timedelta(minutes=5))
    # A thousandth of a degree of latitude is 111.2 m.
    assert values(first.quads) == {
        "p1": f'"{11 / 111.2}"', "p2": f'"{111.2 / 50}"', "p3": '"50.0"'
    }  # fmt: skip
    # Nobody moves: no time can be estimated.
    assert values(second.quads)["p2"] == '"-1.0"'
    assert len(first.quads) == 3 * 4
    assert len({quad.subject for quad in first.quads + second.quads}) == 6


def test_every_kind_of_sensor(city: Path) -> None:
    source = CityBench(city)

    def told(stream: str) -> list[dict[str, str]]:
        return [values(reading.quads) for reading in source.readings(stream, None, None)]

    assert told("AarhusPollutionData7") == [{"a": '"99"'}]
    assert told("AarhusParkingDataX") == [{"v": '"95"'}]
    # What a sensor does not say is no observation.
    assert told("AarhusWeatherData0") == [{"w1": '"18.0"', "w2": '"56"'}, {"w1": '"18.5"'}]
    place, _ = source.readings("UserLocationService", None, None)
    assert place.at == SEVEN
    assert {q.object.split("^^")[0] for q in place.quads if "itude" in q.predicate} == {
        '"56.5"', '"10.25"'
    }  # fmt: skip


def test_the_feed_tells_the_latest_of_every_sensor(city: Path) -> None:
    (city / "streams" / "UserLocationService.csv").unlink()
    source = CityBench(city)
    batches = list(source.batches(None, None))
    minutes = [(batch.at - SEVEN).total_seconds() / 60 for batch in batches]
    assert minutes == pytest.approx([0, 1 + 0.145 / 60, 5, 20])
    assert [batch.until for batch in batches[:-1]] == [batch.at for batch in batches[1:]]
    assert [sorted(values(batch.quads)) for batch in batches] == [
        ["p1", "p2", "p3", "w1", "w2"],
        ["p1", "p2", "p3", "v", "w1", "w2"],
        ["a", "p1", "p2", "p3", "v", "w1", "w2"],
        ["a", "p1", "p2", "p3", "v", "w1"],
    ]
    span = source.span(None, None)
    assert span == (SEVEN, batches[-1].until, 4)
    assert source.span(SEVEN + timedelta(days=1), None) is None
    assert [b.at for b in source.batches(batches[1].at, batches[2].at)] == [batches[1].at]


def test_a_row_that_comes_late_is_left_out(city: Path) -> None:
    lines = FILES["AarhusTrafficData1"].splitlines()
    text = "\ufeff" + "\n".join([*lines, lines[1], lines[2].replace("07:05", "07:10")])
    (city / "streams" / "AarhusTrafficData1.csv").write_text(text)
    told = list(CityBench(city).readings("AarhusTrafficData1", None, None))
    assert [f"{each.at:%H:%M}" for each in told] == ["07:00", "07:05", "07:10"]
    assert all(batch.at < batch.until for batch in CityBench(city).batches(None, None))


def test_rows_at_a_period_of_ones_own(city: Path) -> None:
    source = CityBench(city, period=timedelta(seconds=1))
    assert [r.at for r in source.readings("AarhusWeatherData0", None, None)] == [
        SEVEN, SEVEN + timedelta(seconds=1)
    ]  # fmt: skip


def test_static_facts_and_the_graphs_of_events(city: Path) -> None:
    source = CityBench(city)
    quads = [quad for piece in source.pieces(4) for quad in source.quads(piece)]
    assert {quad.graph for quad in quads} == {"", "<http://example.org/citybench/culturalevents>"}
    plain = ox.parse(REPOSITORY, format=ox.RdfFormat.TURTLE)
    assert sum(quad.graph == "" for quad in quads) == sum(1 for _ in plain)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("AarhusWeatherData0", "hum,tempm,TIMESTAMP\n1,2,soon\n", "line 2: no time in the column"),
        ("AarhusWeatherData0", "hum,tempm,TIMESTAMP\n1,warm,2014-08-01T07:00:00\n", "row 1"),
        ("AarhusWeatherData0", "hum,tempm,TIMESTAMP\n1,nan,2014-08-01T07:00:00\n", "row 1"),
        ("AarhusTrafficData9", FILES["AarhusTrafficData1"], "does not know this"),
        ("Trams", "a\n1\n", "no sensor of CityBench"),
    ],
)
def test_what_is_malformed_is_named(city: Path, name: str, text: str, message: str) -> None:
    (city / "streams" / f"{name}.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        list(CityBench(city).readings(name, None, None))


@pytest.mark.parametrize("value", ['"here"', '"inf"', '"NaN"'])
def test_a_road_without_a_place_is_named(city: Path, value: str) -> None:
    repository = city / "static" / "SensorRepository.n3"
    repository.write_text(REPOSITORY.replace("56.001", value))
    with pytest.raises(InputError, match=f"SensorRepository.n3: no coordinate: .*road.*{value}"):
        list(CityBench(city).readings("AarhusTrafficData1", None, None))


def test_what_is_missing(tmp_path: Path, city: Path) -> None:
    with pytest.raises(InputError, match="SensorRepository"):
        CityBench(tmp_path / "absent")
    for file in (city / "streams").iterdir():
        file.unlink()
    with pytest.raises(InputError, match="holds no sensor"):
        CityBench(city)


def streams_of(query: str) -> Iterator[tuple[str, str]]:
    """Return the streams of a benchmark query and their patterns."""
    for part in query.split("stream <")[1:]:
        name, _, rest = part.partition(">")
        yield name.removeprefix(SERVICES), rest[rest.index("{") + 1 : rest.index("}")]


@pytest.fixture(scope="module")
def real() -> CityBench:
    return CityBench(REAL)


@pytest.mark.skipif(not REAL.is_dir(), reason="the data of CityBench are not there")
@pytest.mark.parametrize("number", [*range(1, 13)])
def test_the_patterns_of_the_queries_find_observations(real: CityBench, number: int) -> None:
    query = (REAL / "queries" / "cqels" / f"Q{number}.rq").read_text()
    streams = list(streams_of("\n".join(line.partition("###")[0] for line in query.splitlines())))
    assert streams
    store = ox.Store()
    for name, pattern in streams:
        store.clear()
        reading = next(real.readings(name, None, None))
        text = "".join(f"{q.subject} {q.predicate} {q.object} .\n" for q in reading.quads)
        store.load(text.encode(), format=ox.RdfFormat.N_TRIPLES)
        rows = list(solutions_of(store, f"SELECT * {{ {pattern} }}"))
        assert rows, (name, pattern)
