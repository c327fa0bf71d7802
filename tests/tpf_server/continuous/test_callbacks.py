"""Callbacks and expressions that raise, close, register and push do nothing to other queries."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.any_language import register
from tpf_client.sparql.expressions.functions import FUNCTIONS
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.errors import CallbackError, FailedEvaluationError
from tpf_server.continuous.runtime.semantics import CQELS as CQELS_POLICY
from tpf_server.continuous.runtime.semantics import PAPER, Semantics

P = "<urn:p>"
CQELS = "SELECT ?a { STREAM <urn:s> [RANGE 10ms] { ?a <urn:p> ?b } FILTER(?a != <urn:x%s>) }"
INSTANCES = "SELECT ?a { STREAM <urn:s> [RANGE 10ms] { ?a <urn:p> ?b . ?a <urn:q> <urn:x%s> } }"
GROUPS = (
    "SELECT ?a (COUNT(*) AS ?n) (<urn:x%s> AS ?x) { STREAM <urn:s> [RANGE 10ms] { ?a <urn:p> ?b } }"
    " GROUP BY ?a"
)
PERIODIC = (
    "SELECT ?a ?b FROM STREAM <urn:s> [RANGE 4ms STEP 1ms]"
    " { ?a <urn:p> ?b FILTER(?a != <urn:x%s>) }"
)
COUNTED = (
    "SELECT ?a ?b FROM STREAM <urn:s> [RANGE TRIPLES 2] { ?a <urn:p> ?b FILTER(?a != <urn:x%s>) }"
)
Take = Callable[[Any], None]


class Hall:
    """An engine with three queries that differ in a constant."""

    def __init__(self, text: str) -> None:
        self.engine: Any = Engine()
        self.text = text
        self.queries: list[Any] = []

    def add(self, take: Take) -> None:
        self.queries.append(register(self.engine, self.text % len(self.queries), take))

    def push(self, at: int) -> None:
        triples = [(f"<urn:a{at % 2}>", P, f"<urn:b{at}>")]
        if self.text is not COUNTED:  # which answers for each triple
            triples += ((f"<urn:a{at % 2}>", "<urn:q>", f"<urn:x{n}>") for n in range(3))
        self.engine.push("urn:s", triples, at)


@pytest.fixture(params=[CQELS, INSTANCES, GROUPS, PERIODIC, COUNTED])
def hall(request: pytest.FixtureRequest) -> Hall:
    return Hall(request.param)


def alone(hall: Hall) -> list[Any]:
    """Return the emissions of a query over ten elements."""
    found: list[Any] = []
    other = Hall(hall.text)
    other.add(found.append)
    for at in range(1, 11):
        other.push(at)
    assert len(found) > 8
    return found


def plain(emissions: list[Any]) -> list[Any]:
    """Return emissions by instant and rows."""
    return [(each.at, [row[:2] for row in each.rows]) for each in emissions]


def played(hall: Hall, acting: int, act: Callable[[], None]) -> list[list[Any]]:
    """Return the emissions of three queries, of which one acts when it takes the third."""
    found: list[list[Any]] = [[], [], []]

    def taker(number: int) -> Take:
        def take(emission: Any) -> None:
            found[number].append(emission)
            if number == acting and len(found[number]) == 3:
                act()

        return take

    for number in range(3):
        hall.add(taker(number))
    for at in range(1, 11):
        hall.push(at)
    return [plain(each) for each in found]


@pytest.mark.parametrize("place", range(3))
def test_a_callback_that_raises_stops_its_query_and_no_other(hall: Hall, place: int) -> None:
    expected = plain(alone(hall))

    def fail() -> None:
        raise ValueError("no such row")

    found = played(hall, place, fail)
    for number, query in enumerate(hall.queries):
        assert found[number] == (expected[:3] if number == place else expected)
        assert query.state == ("stopped" if number == place else "running")
    stopped = hall.queries[place]
    assert isinstance(stopped.error, CallbackError)
    assert isinstance(stopped.error.__cause__, ValueError)
    says = "the callback of query {} raised ValueError: no such row"
    assert stopped.explain()["error"] == says.format(stopped.explain()["name"])
    assert "error" not in hall.queries[place - 1].explain()


@pytest.mark.parametrize("closer", range(3))
@pytest.mark.parametrize("closed", range(3))
def test_a_callback_may_close_any_query(hall: Hall, closer: int, closed: int) -> None:
    expected = plain(alone(hall))
    found = played(hall, closer, lambda: hall.queries[closed].close())
    # What it would have got at the same time is not given any more.
    before = expected[: 2 if closed > closer else 3]
    assert found == [before if number == closed else expected for number in range(3)]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            "CONSTRUCT { ?a <urn:p> ?b } { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }",
            {"into": "urn:made"},
        ),
        (
            "REGISTER STREAM <urn:made> AS CONSTRUCT { ?a <urn:p> ?b }"
            " FROM STREAM <urn:s> [RANGE TRIPLES 1] { ?a <urn:p> ?b }",
            {},
        ),
    ],
)
def test_a_query_that_its_callback_closes_feeds_its_stream_no_more(
    text: str, options: dict[str, str]
) -> None:
    engine = Engine()
    reader = engine.register("SELECT ?a { STREAM <urn:made> [ALL] { ?a ?p ?b } }")
    query: Any = register(engine, text, lambda _: query.close(), **options)
    engine.push("urn:s", ("<urn:a>", P, "<urn:b>"), 1)
    assert (query.emitted, list(reader)) == (1, [])


@pytest.mark.parametrize("text", [CQELS, INSTANCES, GROUPS])
def test_a_callback_may_register_and_push(text: str) -> None:
    """Results follow earlier ones, in the order of elements."""
    hall = Hall(text)
    expected = plain(alone(hall))
    first: list[Any] = []
    second: list[Any] = []
    late: list[Any] = []

    def take(emission: Any) -> None:
        first.append(emission)
        if len(first) == 1:
            hall.add(late.append)
            hall.push(hall_time[0] + 1)

    hall.add(take)
    hall.add(second.append)
    hall_time = [0]
    while hall_time[0] < 10:
        hall_time[0] += 1
        hall.push(hall_time[0])
        if first and len(hall.queries) == 3 and hall_time[0] < 3:
            hall_time[0] += 1
    for found in (first, second):
        assert [each.at for each in found] == sorted(each.at for each in found)
        assert plain(found)[-1] == expected[-1]
        assert len(plain(found)) == len(expected)
    assert late
    assert [each.at for each in late] == sorted(each.at for each in late)


PLACES = [
    "SELECT ?b {0} {{ {1} FILTER(UCASE(STR(?b)) != '') }}",
    "SELECT ?x {0} {{ {1} BIND(UCASE(STR(?b)) AS ?x) }}",
    "SELECT (UCASE(STR(?b)) AS ?x) {0} {{ {1} }}",
    "SELECT ?b {0} {{ {1} }} ORDER BY UCASE(STR(?b))",
    "SELECT ?b {0} {{ {1} }} ORDER BY UCASE(STR(?b)) LIMIT 2",
    "SELECT ?x (COUNT(*) AS ?n) {0} {{ {1} }} GROUP BY (UCASE(STR(?b)) AS ?x)",
    "SELECT (MAX(UCASE(STR(?b))) AS ?x) {0} {{ {1} }}",
    "SELECT ?b {0} {{ {1} }} GROUP BY ?b HAVING (UCASE(STR(?b)) != '')",
    "SELECT ?b {0} {{ {1} OPTIONAL {{ ?b <urn:q> ?c FILTER(UCASE(STR(?b)) != '') }} }}",
    "SELECT ?b {0} {{ {1} FILTER NOT EXISTS {{ ?b <urn:q> ?c FILTER(UCASE(STR(?b)) = '') }} }}",
    "SELECT ?b {0} {{ {1} {{ SELECT ?b {{ {1} FILTER(UCASE(STR(?b)) != '') }} }} }}",
    "CONSTRUCT {{ ?b <urn:x> ?x }} {0} {{ {1} BIND(UCASE(STR(?b)) AS ?x) }}",
]
LANGUAGES = {
    "CQELS": ("", "STREAM <urn:s> [RANGE 3ms] {{ ?a <urn:p> ?b }}"),
    "SLIDE": ("", "STREAM <urn:s> [RANGE 4ms SLIDE 2ms] {{ ?a <urn:p> ?b }}"),
    "C-SPARQL": ("FROM STREAM <urn:s> [RANGE 4ms STEP 1ms]", "?a <urn:p> ?b"),
    "RSP-QL": (
        "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE PT0.004S STEP PT0.001S]",
        "WINDOW <urn:w> {{ ?a <urn:p> ?b }}",
    ),
}


@pytest.mark.parametrize(
    ("language", "policy"),
    [
        *((each, CQELS_POLICY) for each in ("CQELS", "SLIDE")),
        *((each, PAPER) for each in LANGUAGES),
    ],
)
@pytest.mark.parametrize("place", PLACES)
def test_an_expression_that_raises_stops_its_query_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    language: str,
    place: str,
    policy: Semantics,
) -> None:
    """What is expected of expressions is an error of SPARQL; whatever else ends their query."""
    upper = FUNCTIONS["UCASE"]

    def raising(value: Any) -> Any:
        if str(value).endswith("b5"):
            raise ZeroDivisionError("unexpected")
        return upper(value)

    monkeypatch.setitem(FUNCTIONS, "UCASE", raising)
    clause, pattern = (each.format() for each in LANGUAGES[language])
    found: dict[bool, list[Any]] = {}
    for beside in (False, True):
        engine = Engine(EngineSettings(semantics=policy))
        others: list[Any] = found.setdefault(beside, [])
        register(engine, "SELECT ?a ?b " + f"{clause} {{ {pattern} }}", others.append)
        if beside:
            wrong = register(engine, place.format(clause, pattern), lambda _: None)
        register(engine, "SELECT (COUNT(*) AS ?n) " + f"{clause} {{ {pattern} }}", others.append)
        for at in range(1, 11):
            engine.push("urn:s", (f"<urn:a{at % 2}>", P, f"<urn:b{at}>"), at)
        engine.finish()
    assert plain(found[True]) == plain(found[False])
    if wrong.state == "running":
        # It asks only of what its join has.
        assert "OPTIONAL" in place or "EXISTS" in place
        return
    assert wrong.state == "stopped"
    assert isinstance(wrong.error, FailedEvaluationError)
    assert isinstance(wrong.error.__cause__, ZeroDivisionError)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is wrong.error.__cause__
