"""The queries of both papers as printed, with the omitted prefixes."""

from collections.abc import Mapping

import pytest

from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.semantics import CQELS, PAPER, Semantics

XSD = "http://www.w3.org/2001/XMLSchema#"

# ------------------------------------------------------------- paper 000: the conference scenario

LV = "http://deri.org/floorplan/"
PREFIXES = f"""
PREFIX lv: <{LV}>
PREFIX dc: <http://purl.org/dc/elements/1.1/>
PREFIX dcterms: <http://purl.org/dc/terms/>
PREFIX foaf: <http://xmlns.com/foaf/0.1/>
PREFIX swrc: <http://swrc.ontoware.org/ontology#>
"""
CONFERENCE = {
    "Q1": """
SELECT ?locName ?locDesc
FROM NAMED <http://deri.org/floorplan/>
WHERE {
  STREAM <http://deri.org/streams/rfid> [NOW] {?person lv:detectedAt ?loc}
  GRAPH <http://deri.org/floorplan/> {?loc lv:name ?locName. ?loc lv:desc ?locDesc}
  ?person foaf:name "$Name$". }""",
    "Q2": """
CONSTRUCT {?person1 lv:reachable ?person2}
FROM NAMED <http://deri.org/floorplan/>
WHERE {
  STREAM <http://deri.org/streams/rfid> [NOW]      {?person1 lv:detectedAt ?loc1}
  STREAM <http://deri.org/streams/rfid> [RANGE 3s] {?person2 lv:detectedAt ?loc2}
  GRAPH <http://deri.org/floorplan/>              {?loc1 lv:connected ?loc2} }""",
    "Q3": """
SELECT ?coAuthName
FROM NAMED <http://deri.org/floorplan/>
WHERE {
  STREAM <http://deri.org/streams/rfid> [TRIPLES 1] {?auth lv:detectedAt ?loc}
  STREAM <http://deri.org/streams/rfid> [RANGE 5s] {?coAuth lv:detectedAt ?loc}
  { ?paper dc:creator ?auth. ?paper dc:creator ?coAuth.
    ?auth foaf:name "$Name$". ?coAuth foaf:name ?coAuthName}
  FILTER (?auth != ?coAuth) }""",
    "Q4": """
SELECT ?editorName
WHERE {
  STREAM <http://deri.org/streams/rfid> [TRIPLES 1] {?auth lv:detectedAt ?loc1}
  STREAM <http://deri.org/streams/rfid> [RANGE 15s] {?editor lv:detectedAt ?loc2}
  GRAPH <http://deri.org/floorplan/> {?loc1 lv:connected ?loc2}
  ?paper dc:creator ?auth. ?paper dcterms:partOf ?proceeding.
  ?proceeding swrc:editor ?editor. ?editor foaf:name ?editorName.
  ?auth foaf:name "$Name$" }""",
    "Q5": """
SELECT ?loc2 ?locName count(distinct ?coAuth) as ?noCoAuths
FROM NAMED <http://deri.org/floorplan/>
WHERE {
  STREAM <http://deri.org/streams/rfid> [TRIPLES 1] {?auth lv:detectedAt ?loc1}
  STREAM <http://deri.org/streams/rfid> [RANGE 30s] {?coAuth lv:detectedAt ?loc2}
  GRAPH <http://deri.org/floorplan/> {?loc2 lv:name ?locName. ?loc2 lv:connected ?loc1}
  {?paper dc:creator ?auth. ?paper dc:creator ?coAuth. ?auth foaf:name "$Name$"}
  FILTER (?auth != ?coAuth)}
GROUP BY ?loc2 ?locName""",
}
ROOMS = f"""
<urn:hall> <{LV}connected> <urn:cafe>
<urn:cafe> <{LV}connected> <urn:hall>
<urn:hall> <{LV}name> "Hall"
<urn:hall> <{LV}desc> "large"
<urn:cafe> <{LV}name> "Café"
<urn:cafe> <{LV}desc> "small"
"""
PAPERS = """
<urn:paper> <http://purl.org/dc/elements/1.1/creator> <urn:ann>
<urn:paper> <http://purl.org/dc/elements/1.1/creator> <urn:bob>
<urn:paper> <http://purl.org/dc/terms/partOf> <urn:proceedings>
<urn:proceedings> <http://swrc.ontoware.org/ontology#editor> <urn:eve>
<urn:ann> <http://xmlns.com/foaf/0.1/name> "Ann"
<urn:bob> <http://xmlns.com/foaf/0.1/name> "Bob"
<urn:eve> <http://xmlns.com/foaf/0.1/name> "Eve"
"""
DETECTED = [
    (0, "bob", "hall"), (1_000, "eve", "cafe"), (1_500, "bob", "cafe"), (2_000, "ann", "hall"),
    (30_000, "ann", "hall"), (40_000, "ann", "cafe"),
]  # fmt: skip
REACHABLE = f"<{LV}reachable>"
FOUND: Mapping[str, list[tuple[int, list[tuple[str, ...]]]]] = {
    "Q1": [
        (2_000, [('"Hall"', '"large"')]),
        (30_000, [('"Hall"', '"large"')]),
        (40_000, [('"Café"', '"small"')]),
    ],
    "Q2": [
        (1_000, [("<urn:eve>", REACHABLE, "<urn:bob>")]),
        (1_500, [("<urn:bob>", REACHABLE, "<urn:bob>")]),
        (2_000, [("<urn:ann>", REACHABLE, "<urn:bob>"), ("<urn:ann>", REACHABLE, "<urn:eve>")]),
    ],
    "Q3": [(2_000, [('"Bob"',)])],
    "Q4": [(2_000, [('"Eve"',)])],
    # At 30 s Bob's stay in the café is 28.5 s ago; the hall is next to the café, too.
    "Q5": [
        (2_000, [("<urn:cafe>", '"Café"', f'"1"^^<{XSD}integer>')]),
        (30_000, [("<urn:cafe>", '"Café"', f'"1"^^<{XSD}integer>')]),
    ],
}


def triples(text: str) -> list[list[str]]:
    return [line.split(" ", 2) for line in text.strip().splitlines()]


@pytest.mark.parametrize("name", CONFERENCE)
def test_conference(name: str) -> None:
    text = PREFIXES + CONFERENCE[name].replace("$Name$", "Ann")
    engine = Engine()
    engine.add(triples(PAPERS))
    engine.add(triples(ROOMS), LV)
    query = engine.register(text)
    for at, person, room in DETECTED:
        element = (f"<urn:{person}>", f"<{LV}detectedAt>", f"<urn:{room}>")
        engine.push("http://deri.org/streams/rfid", element, at)
    assert [(each.at, sorted(map(tuple, each.rows))) for each in query] == FOUND[name]


# ------------------------------------------------------------- paper 000: the localisation, table 1

LOCALISATION = """
PREFIX : <urn:>
CONSTRUCT { ?p2 :reaches ?p1 }
WHERE {
  STREAM :S [NOW] { ?p1 :detectedAt ?l1 }
  STREAM :S [RANGE 2ms] { ?p2 :detectedAt ?l2 }
  ?l1 :conn ?l2
}
"""
CONNECTED = [("r1", "r2"), ("r1", "r3"), ("r2", "r1"), ("r3", "r1")]
SEEN = [("m0", "r1"), ("m1", "r2"), ("m2", "r1"), ("m3", "r2")]
REACHES = [[], [("m0", "m1")], [("m1", "m2")], [("m2", "m3")]]


@pytest.mark.parametrize("policy", [CQELS, PAPER], ids=["cqels", "paper"])
def test_the_table_of_the_paper(policy: Semantics) -> None:
    """The paper's table omits that the window of 2 still holds tick t - 2.

    Its definition says t' >= t - T: at tick 2 m0 of tick 0 is in the room of m2, at tick 3 m1 of
    tick 1 in that of m3; neither is connected with itself.
    """
    engine = Engine(EngineSettings(semantics=policy))
    engine.add([(f"<urn:{a}>", "<urn:conn>", f"<urn:{b}>") for a, b in CONNECTED])
    query = engine.register(LOCALISATION)
    for tick, (person, room) in enumerate(SEEN):
        engine.push("urn:S", (f"<urn:{person}>", "<urn:detectedAt>", f"<urn:{room}>"), tick)
    emitted = {each.at: list(each.rows) for each in query}
    assert [emitted.get(tick, []) for tick in range(len(SEEN))] == [
        [(f"<urn:{one}>", "<urn:reaches>", f"<urn:{two}>") for one, two in expected]
        for expected in REACHES
    ]


# ----------------------------------------------------------------- paper 001: the taxis of DEBS

Q1 = """
SELECT  (ROUND((41.474937-?pLat)/0.005986) AS ?pE)
        (ROUND((74.913585+?pLon)/0.004491556) AS ?pS)
        (ROUND((41.474937-?dLat)/0.005986) AS ?dE)
        (ROUND((74.913585+?dLon)/0.004491556) AS ?dS)
        (COUNT(?trip) AS ?freq)
WHERE {
  STREAM <Taxi> [RANGE 30 minutes] {
    ?trip :pickLon ?pLon. ?trip :pickLat ?pLat.
    ?trip :dropLon ?dLon. ?trip :dropLat ?dLat. }
}
GROUP BY ?pE ?pS ?dE ?dS
HAVING (?pE>0 && ?pE<301 && ?pS>0 && ?pS<301 &&
        ?dE>0 && ?dE<301 && ?dS>0 && ?dS<301)
ORDER BY ?freq
LIMIT 10"""
Q2 = """
SELECT ?pE ?pS ?noEmptyTaxis
       ?prof (?prof/?noEmptyTaxis AS ?profitability)
WHERE {
  {SELECT
    (ROUND((41.474937-?pLat1)*2/0.005986) AS ?pE)
    (ROUND((74.913585+?pLon1)*2/0.004491556) AS ?pS)
    (MEDIAN(?fare+?tip) AS ?prof)
   WHERE {
     STREAM <Taxi> [RANGE 15 minutes] {
       ?trip :fare ?fare. ?trip :tip ?tip.
       ?trip :pickLat ?pLat1. ?trip :pickLon ?pLon1.
     }
   }
   GROUP BY ?pE ?pS
   HAVING (?pE>0 && ?pE<601 && ?pE>0 && ?pS<601)
  }
  {SELECT
    (ROUND((41.474937-?pLat2)*2/0.005986) AS ?pE)
    (ROUND((74.913585+?pLon2)*2/0.004491556) AS ?pS)
    (COUNT(?taxi) AS ?noEmptyTaxis)
   WHERE {
     STREAM <Taxi> [RANGE 30 minutes] {
       ?trip2 :pickLat ?pLat2. ?trip2 :pickLon ?pLon2.
       ?trip2 :taxi ?taxi. ?trip2 :dropoffTime ?dropoff.
     }
     FILTER NOT EXISTS {
       STREAM <Taxi> [RANGE 30 minutes] {
         ?trip3 :taxi ?taxi. ?trip3 :pickupTime ?pickup.
       }
       FILTER (?pickup>?dropoff)
     }
   }
   GROUP BY ?pE ?pS
   HAVING (?pE>0 && ?pE<601 && ?pS>0 && ?pS<601 && ?noEmptyTaxis>0)
  }
}
ORDER BY ?profitability
LIMIT 10"""
MINUTE = 60_000
# Minute of the drop-off, taxi, minute of the pickup, fare: all from one cell to its neighbour.
TRIPS = [(2, "red", 0, "3.5"), (10, "red", 5, "8.5"), (11, "blue", 4, "5.5"), (41, "red", 39, "2")]


def instant(minute: int) -> str:
    return f'"2013-01-01T00:{minute:02}:00Z"^^<{XSD}dateTime>'


def decimal(value: str) -> str:
    return f'"{value}"^^<{XSD}decimal>'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The cells that the paper gives for its trip, with how many trips there were.
        (Q1, [(minute, ("127", "213", "127", "212", n)) for minute, n in
              ((2, "1"), (10, "2"), (11, "3"), (41, "2"))]),
        # Empty taxis, median, profit for each of them. At 11 the red one is empty (since 10) and
        # the blue one; at 41 what came before 11 is gone, and of fares what came before 26.
        (Q2, [(2, ("253", "426", "1", "3.5", "3.5")), (10, ("253", "426", "1", "6", "6")),
              (11, ("253", "426", "2", "5.5", "2.75")), (41, ("253", "426", "2", "2", "1"))]),
    ],
    ids=["Q1", "Q2"],
)  # fmt: skip
@pytest.mark.parametrize("policy", [CQELS, PAPER], ids=["cqels", "paper"])
def test_debs(text: str, expected: list[tuple[int, tuple[str, ...]]], policy: Semantics) -> None:
    engine = Engine(EngineSettings(semantics=policy))
    query = engine.register("PREFIX : <http://example.org/taxi#>\n" + text)
    for number, (at, taxi, pickup, fare) in enumerate(TRIPS):
        values = {
            "taxi": f'"{taxi}"', "pickupTime": instant(pickup), "dropoffTime": instant(at),
            "pickLon": decimal("-73.956528"), "pickLat": decimal("40.716976"),
            "dropLon": decimal("-73.962440"), "dropLat": decimal("40.715008"),
            "fare": decimal(fare), "tip": decimal("0.0"),
        }  # fmt: skip
        element = [
            (f"<urn:trip{number}>", f"<http://example.org/taxi#{name}>", value)
            for name, value in values.items()
        ]
        engine.push("http://localhost/Taxi", element, at * MINUTE)
    # What the instants between trips change is another matter.
    found = [
        (each.at // MINUTE, tuple(str(term).split('"')[1] for term in row))
        for each in query
        for row in each.rows
        if not each.at % MINUTE
    ]
    assert found == expected
