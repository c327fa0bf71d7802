"""Every example of paper 003, with results computed by hand.

Omitted prefixes are added, and ``?Tot`` is written ``?tot``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.csparql_beside_spark import EngineBesideSpark
from tpf_server.continuous.continuous_engine import Engine, InstantSettings
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.instants.periodic_query import PeriodicQuery
from tpf_server.continuous.runtime.instants.rules import RULES, Rule

PREFIXES = """
PREFIX c: <http://linkedurbandata.org/city#>
PREFIX t: <http://linkedurbandata.org/traffic#>
"""
GATES = "http://streams.org/citytollgates.trdf"
CAMERAS = "http://streams.org/citycameras.trdf"
MARKET = "http://stockexchange.org/market.trdf"
MINUTE = 60_000
HOUR = 60 * MINUTE

NAMESPACES = {
    "c": "http://linkedurbandata.org/city#",
    "t": "http://linkedurbandata.org/traffic#",
    "b": "http://brokerscentral.org/accounts#",
    "x": "http://stockexchange.org/exchanges#",
    "y": "http://stockexchanges.org/exchanges#",
}


def term(text: str) -> str:
    """``c:name``, a number or a quoted string as a term."""
    if text.isdecimal():
        return f'"{text}"^^<http://www.w3.org/2001/XMLSchema#integer>'
    prefix, colon, local = text.partition(":")
    return f"<{NAMESPACES[prefix]}{local}>" if colon and prefix in NAMESPACES else text


def triple(text: str) -> list[str]:
    return [term(word) for word in text.split()]


def triples(lines: str) -> list[list[str]]:
    return [triple(line) for line in lines.splitlines() if line.strip()]


ON_SPARK = pytest.param(
    None, id="and on Spark", marks=[pytest.mark.spark, pytest.mark.xdist_group("spark")]
)


@pytest.fixture(
    params=[pytest.param((), id="as written"), pytest.param(RULES, id="rewritten"), ON_SPARK]
)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    rules: tuple[Rule, ...] | None = request.param
    if rules is not None:
        yield Engine(instants=InstantSettings(rules=rules))
        return
    spark = request.getfixturevalue("spark")
    made = EngineBesideSpark()
    yield made
    for reason in made.compare(spark, tmp_path):
        assert "windows that count triples" in reason or "without FROM STREAM" in reason


def rows(answer: PeriodicAnswer) -> list[tuple[str | None, ...]]:
    return sorted(answer.rows, key=str)


def answered(query: PeriodicQuery, unit: int = MINUTE) -> dict[int, list[tuple[str | None, ...]]]:
    return {answer.at // unit: rows(answer) for answer in query}


def expected(*lines: str) -> list[tuple[str, ...]]:
    return sorted((tuple(triple(line)) for line in lines), key=str)


def feed(engine: Engine, stream: str, lines: str, unit: int = MINUTE) -> None:
    """Push triples, each behind its time."""
    for line in lines.strip().splitlines():
        at, *words = line.split()
        engine.push(stream, [term(word) for word in words], int(float(at) * unit))


CITY = """
c:gate1 c:placedIn c:street1
c:gate2 c:placedIn c:street2
c:gate3 c:placedIn c:street2
c:north c:contains c:street1
c:east c:contains c:street2
"""


def test_sensors_of_a_street(engine: Engine) -> None:
    text = """
PREFIX c: <http://linkedurbandata.org/city#>

SELECT DISTINCT ?street ?total-sensor
WHERE { ?sensor c:placedIn ?street . }
AGGREGATE { ( ?total-sensor, COUNT, {?street} )
            FILTER (?total-sensor > 5) }
"""
    engine.add(triple(f"c:sensor{n} c:placedIn c:busy") for n in range(6))
    engine.add(triple(f"c:sensor{n} c:placedIn c:calm") for n in range(6, 11))
    assert rows(engine.ask(text)) == expected("c:busy 6")


def test_cars_through_tollgates(engine: Engine) -> None:
    text = """
PREFIX t: <http://linkedurbandata.org/traffic#>

SELECT DISTINCT ?tollgate ?passages
FROM STREAM <http://streams.org/citytollgates.trdf>
           [RANGE 10m STEP 1m]
WHERE { ?tollgate t:registers ?car . }
AGGREGATE { (?passages, COUNT, {?tollgate} ) }
"""
    registered = engine.register_csparql(text)
    # The five cars of section 2.1, one a minute; the first comes 30 seconds after a full minute.
    cars = """
    0.5 c:Distr1 t:registers 156
    1.5 c:Distr2 t:registers 75
    2.5 c:Distr1 t:registers 130
    3.5 c:Distr2 t:registers 95
    4.5 c:Distr3 t:registers 65
    """
    feed(engine, GATES, cars)
    engine.advance(15 * MINUTE)
    answers = answered(registered)
    assert list(answers) == list(range(1, 16))
    assert answers[1] == expected("c:Distr1 1")
    assert answers[3] == expected("c:Distr1 2", "c:Distr2 1")
    assert answers[5] == expected("c:Distr1 2", "c:Distr2 2", "c:Distr3 1")
    # (1, 11] has lost the car of minute 0.5.
    assert answers[11] == expected("c:Distr1 1", "c:Distr2 2", "c:Distr3 1")
    assert answers[14] == expected("c:Distr3 1")
    assert answers[15] == []


DISTRICTS = (
    """
REGISTER QUERY CarsEnteringCityCenterPerDistrict
COMPUTED EVERY 5m AS
"""
    + PREFIXES
    + """
SELECT DISTINCT ?district ?passages
FROM STREAM <http://streams.org/citytollgates.trdf>
[RANGE 30m STEP 5m]
WHERE { ?tollgate t:registers ?car .
        ?tollgate c:placedIn ?street .
        ?district c:contains ?street . }
AGGREGATE {(?passages, COUNT, {?district})}
"""
)


def test_cars_per_district(engine: Engine) -> None:
    engine.add(triples(CITY))
    registered = engine.register_csparql(DISTRICTS)
    assert registered.name == "CarsEnteringCityCenterPerDistrict"
    cars = """
    1 c:gate1 t:registers 1
    2 c:gate2 t:registers 2
    6 c:gate3 t:registers 3
    30 c:gate1 t:registers 4
    31 c:gate1 t:registers 5
    35 c:nowhere t:registers 6
    """
    feed(engine, GATES, cars)
    engine.finish()
    answers = answered(registered)
    assert list(answers) == [5, 10, 15, 20, 25, 30, 35]
    assert answers[5] == expected("c:north 1", "c:east 1")
    assert answers[10] == expected("c:north 1", "c:east 2")
    assert answers[30] == expected("c:north 2", "c:east 2")
    assert answers[35] == expected("c:north 2", "c:east 1")


def test_a_stream_of_cars_per_district(engine: Engine) -> None:
    text = (
        """
REGISTER STREAM CarsEnteringCityCenterPerDistrict
COMPUTED EVERY 5m AS
"""
        + PREFIXES
        + """
CONSTRUCT {?district t:has-entering-cars ?passages}
FROM STREAM <http://streams.org/citytollgates.trdf>
[RANGE 30m STEP 5m]
WHERE { ?tollgate t:registers ?car .
        ?district c:contains ?street .
        ?tollgate c:placedIn ?street . }
AGGREGATE {(?passages,
            COUNT, {?district, ?tollgate, ?car})}
"""
    )
    engine.add(triples(CITY))
    registered = engine.register_csparql(text)
    # Another query reads the stream by its name.
    most = engine.register_csparql(
        "REGISTER QUERY Most AS"
        + PREFIXES
        + "SELECT DISTINCT ?district ?most FROM STREAM <CarsEnteringCityCenterPerDistrict>"
        " [RANGE 10m STEP 5m] WHERE { ?district t:has-entering-cars ?n }"
        " AGGREGATE { (?most, MAX(?n), {?district}) }"
    )
    cars = """
    1 c:gate1 t:registers 1
    2 c:gate1 t:registers 2
    6 c:gate2 t:registers 3
    31 c:gate2 t:registers 4
    """
    feed(engine, GATES, cars)
    engine.finish()
    answers = answered(registered)
    # Grouped by district, tollgate and car, each car is counted once.
    assert answers[5] == expected("c:north t:has-entering-cars 1")
    assert answers[10] == expected("c:north t:has-entering-cars 1", "c:east t:has-entering-cars 1")
    assert answers[35] == expected("c:east t:has-entering-cars 1")
    read = answered(most)
    # A stream is evaluated before those that read it at the same instant.
    assert read[5] == expected("c:north 1")
    assert read[10] == expected("c:north 1", "c:east 1")
    # (25, 35] has the triples of minutes 30 and 35.
    assert read[35] == expected("c:north 1", "c:east 1")


def test_full_streets(engine: Engine) -> None:
    text = (
        "REGISTER QUERY FullStreets AS"
        + PREFIXES
        + """
SELECT ?street ?passages
FROM STREAM <http://streams.org/citytollgates.trdf>
[RANGE 5m TUMBLING]
FROM STREAM <http://streams.org/citycameras.trdf>
[RANGE 5m TUMBLING]
WHERE {
  ?street c:hasCapacity ?capacity .
  {
    GRAPH <http://streams.org/citytollgates.trdf> {
      ?tollgate t:registers ?car .
      ?tollgate c:placedIn ?street .
    }
  }
  UNION
  {
    GRAPH <http://streams.org/citycameras.trdf> {
      ?camera t:registers ?car .
      ?camera c:placedAt ?light .
      ?light c:crossing ?street .
    }
  }
}
AGGREGATE { ( ?passages, COUNT, {?street} )
            FILTER ( ?passages > (0.8 * ?capacity)) }
"""
    )
    static = """
    c:street1 c:hasCapacity 3
    c:street2 c:hasCapacity 3
    c:camera1 c:placedAt c:light1
    c:light1 c:crossing c:street1
    """
    engine.add(triples(CITY + static))
    registered = engine.register_csparql(text)
    for stream, element in [
        (GATES, "1 c:gate1 t:registers 1"),
        (GATES, "2 c:gate1 t:registers 2"),
        (GATES, "2 c:gate2 t:registers 3"),
        (CAMERAS, "3 c:camera1 t:registers 1"),
        (GATES, "5 c:gate2 t:registers 4"),
        (GATES, "6 c:gate1 t:registers 5"),
        (GATES, "7 c:gate1 t:registers 6"),
        (GATES, "8 c:gate1 t:registers 7"),
    ]:
        feed(engine, stream, element)
    engine.finish()
    # Street 1 has three cars of at most 2.4 (one row for each), street 2 has two.
    assert answered(registered) == {
        5: expected("c:street1 3", "c:street1 3", "c:street1 3"),
        10: expected("c:street1 3", "c:street1 3", "c:street1 3"),
    }


def test_cars_that_turn(engine: Engine) -> None:
    text = (
        """
REGISTER STREAM AllCarsTurningFromPalmIntoOak
COMPUTED EVERY 1m AS
"""
        + PREFIXES
        + """
SELECT DISTINCT ?car1
FROM STREAM <http://streams.org/citycameras.trdf>
[RANGE 5m STEP 1m]
WHERE {
  ?camera1 c:monitors c:Oak-Avenue .
  ?camera2 c:monitors c:Palm-Street .
  ?camera1 c:placedAt ?tr_light .
  ?camera2 c:placedAt ?tr_light .
  ?camera1 t:registers ?car1 .
  ?camera2 t:registers ?car2 .
  FILTER ( timestamp(?car1)>timestamp(?car2)
    && ?car1 = ?car2 ) }
"""
    )
    static = """
    c:oak c:monitors c:Oak-Avenue
    c:palm c:monitors c:Palm-Street
    c:oak c:placedAt c:light
    c:palm c:placedAt c:light
    c:far c:monitors c:Oak-Avenue
    c:far c:placedAt c:otherlight
    """
    engine.add(triples(static))
    registered = engine.register_csparql(text)
    # At 4 car 1 is seen by Palm Street again: now that is its latest timestamp there.
    cars = """
    1 c:palm t:registers 1
    1 c:oak t:registers 2
    2 c:oak t:registers 1
    2 c:palm t:registers 2
    2 c:palm t:registers 3
    3 c:far t:registers 3
    4 c:palm t:registers 1
    5 c:oak t:registers 2
    """
    feed(engine, CAMERAS, cars)
    engine.advance(10 * MINUTE)
    answers = answered(registered)
    assert answers[1] == []
    assert answers[2] == expected("1")
    assert answers[3] == expected("1")
    assert answers[4] == []
    assert answers[5] == expected("2")
    # Palm Street saw car 2 at minute 2, which leaves (2, 7].
    assert answers[6] == expected("2")
    assert answers[7] == []


BROKERS = """
b:anna b:is_from "CH"
b:bert b:is_from "CH"
b:carl b:is_from "IT"
"""


def test_total_amount_of_brokers(engine: Engine) -> None:
    text = """
REGISTER QUERY TotalAmountPerDayAndBroker AS
PREFIX b: <http://brokerscentral.org/accounts#>
PREFIX x: <http://stockexchange.org/exchanges#>

SELECT DISTINCT ?broker ?total
FROM <http://brokerscentral.org/brokers.rdf>
FROM STREAM <http://stockexchange.org/market.trdf>
[RANGE 24h TUMBLING]
WHERE {
  ?broker b:is_from ?country .
  ?broker x:does ?tx .
  ?tx x:with ?amount .
  FILTER (?country = 'CH' ^^ ?amount >= 10)
}
AGGREGATE { (?total, SUM(?amount), ?broker) }
"""
    engine.add(triples(BROKERS), "http://brokerscentral.org/brokers.rdf")
    # The default graph of the repository is not asked: the query says FROM.
    engine.add([triple('b:dora b:is_from "CH"')])
    registered = engine.register_csparql(text)
    for hour, broker, amount in [
        (1, "anna", 10), (2, "anna", 9), (3, "anna", 32), (4, "bert", 5), (5, "carl", 99),
        (6, "dora", 50), (25, "bert", 12),
    ]:  # fmt: skip
        feed(engine, MARKET, f"{hour} b:{broker} x:does x:tx{hour}", HOUR)
        feed(engine, MARKET, f"{hour} x:tx{hour} x:with {amount}", HOUR)
    engine.finish()
    assert answered(registered, HOUR) == {24: expected("b:anna 42"), 48: expected("b:bert 12")}


def test_sellers_of_markets(engine: Engine) -> None:
    text = """
REGISTER QUERY SellerMarketMovementsPerDay AS

PREFIX x: <http://stockexchanges.org/exchanges#>

FROM <http://brokerscentral.org/brokers.rdf>
FROM STREAM <http://stockexchange.org/market.trdf>
[RANGE 24 hours TUMBLING]

SELECT DISTINCT ?seller, ?market, ?tot
WHERE {
  GRAPH ?market {
    ?Transaction x:seller ?seller .
    ?Transaction x:with ?amount .
  }
}
AGGREGATE { (?tot, SUM(?amount), {?seller, ?market}) }
"""
    engine.add(triples(BROKERS), "http://brokerscentral.org/brokers.rdf")
    registered = engine.register_csparql(text)
    for hour, seller, amount in [(1, "anna", 10), (2, "anna", 20), (3, "bert", 5)]:
        feed(engine, MARKET, f"{hour} y:tx{hour} y:seller b:{seller}", HOUR)
        feed(engine, MARKET, f"{hour} y:tx{hour} y:with {amount}", HOUR)
    engine.finish()
    (answer,) = registered
    market = f"<{MARKET}>"
    assert rows(answer) == expected(f"b:anna {market} 30", f"b:bert {market} 5")


def test_sellers_of_several_markets(engine: Engine) -> None:
    """Both classes of distributable aggregates of section 5.2, each stream one market."""
    text = """
PREFIX x: <http://stockexchanges.org/exchanges#>
SELECT DISTINCT {keys} ?tot
FROM NAMED STREAM <http://e/milan> [RANGE 1h TUMBLING]
FROM NAMED STREAM <http://e/zurich> [RANGE 1h TUMBLING]
WHERE {{ GRAPH ?market {{ ?t x:seller ?seller . ?t x:with ?amount }} }}
AGGREGATE {{ (?tot, {function}(?amount), {{{group}}}) }}
"""
    total = engine.register_csparql(
        text.format(keys="?seller ?market", function="SUM", group="?seller, ?market")
    )
    partial = {
        function: engine.register_csparql(
            text.format(keys="?seller", function=function, group="?seller")
        )
        for function in ("SUM", "COUNT", "AVG", "MIN", "MAX")
    }
    for market, number, seller, amount in [
        ("milan", 1, "anna", 10), ("milan", 2, "anna", 20), ("zurich", 3, "anna", 30),
        ("zurich", 4, "bert", 4),
    ]:  # fmt: skip
        for element in (f"y:t{number} y:seller b:{seller}", f"y:t{number} y:with {amount}"):
            engine.push(f"http://e/{market}", triple(element), number * MINUTE)
    engine.finish()
    (answer,) = total
    assert rows(answer) == expected(
        "b:anna <http://e/milan> 30", "b:anna <http://e/zurich> 30", "b:bert <http://e/zurich> 4"
    )
    decimal = '"{}"^^<http://www.w3.org/2001/XMLSchema#decimal>'
    for function, anna, bert in [
        ("SUM", "60", "4"), ("COUNT", "3", "1"), ("MIN", "10", "4"), ("MAX", "30", "4"),
        ("AVG", decimal.format(20), decimal.format(4)),
    ]:  # fmt: skip
        (answer,) = partial[function]
        assert rows(answer) == expected(f"b:anna {anna}", f"b:bert {bert}"), function
