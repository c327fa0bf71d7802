import pytest

from tpf_server.continuous.languages.csparql.parser import parse
from tpf_server.continuous.runtime.errors import ContinuousSyntaxError
from tpf_server.continuous.runtime.instants.csparql_query import (
    Instants,
    LogicalWindow,
    PhysicalWindow,
)

STREAM = "FROM STREAM <http://e/s> [RANGE 1s STEP 1s]"


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("RANGE 10m STEP 1m", LogicalWindow(600_000, 60_000)),
        ("range 3000ms step 1s", LogicalWindow(3000, 1000)),
        ("RANGE 24 hours TUMBLING", LogicalWindow(86_400_000, 86_400_000)),
        ("RANGE 1d STEP 1h", LogicalWindow(86_400_000, 3_600_000)),
        ("RANGE TRIPLES 10", PhysicalWindow(10)),
        ("RANGE TRIPLES 10 STEP 2", PhysicalWindow(10, 2)),
        ("RANGE TRIPLES 10 TUMBLING", PhysicalWindow(10, 10)),
    ],
)
def test_windows(written: str, window: object) -> None:
    query = parse(f"SELECT * FROM NAMED STREAM <http://e/s> [{written}] WHERE {{ ?s ?p ?o }}")
    (clause,) = query.streams
    assert clause.window == window
    assert clause.named


def test_instants_of_several_windows() -> None:
    instants = Instants.of(None, [LogicalWindow(9, 2), LogicalWindow(9, 3), LogicalWindow(9, 6)])
    assert instants.periods == (2, 3)
    assert list(instants.between(0, 9)) == [2, 3, 4, 6, 8, 9]
    assert instants.first(4) == 4


# The marked place is where the error must point.
BAD = {
    "no window": ("SELECT * FROM STREAM <http://e/s> ^WHERE { ?s ?p ?o }", "a window"),
    "no overlap": ("SELECT * FROM STREAM <http://e/s> [RANGE 5m^] WHERE {}", "STEP or TUMBLING"),
    "step too long": (
        "SELECT * FROM STREAM <http://e/s> [RANGE 5s STEP ^10s] WHERE {}",
        "STEP 10000ms is longer than RANGE 5000ms",
    ),
    "no unit": ("SELECT * FROM STREAM <http://e/s> [RANGE 5 ^STEP 1s] {}", "a unit of time"),
    "range of nothing": ("SELECT * FROM STREAM <http://e/s> [RANGE ^0s TUMBLING] {}", "RANGE"),
    "twice": (
        f"SELECT * {STREAM} FROM NAMED STREAM ^<http://e/s> [RANGE 2s TUMBLING] {{}}",
        "stands here twice",
    ),
    "never": ("REGISTER ^QUERY q AS SELECT * WHERE { ?s ?p ?o }", "neither FROM STREAM nor"),
    "stream of a boolean": (
        f"REGISTER STREAM q AS ^ASK {STREAM} {{ ?s ?p ?o }}",
        "REGISTER STREAM needs triples",
    ),
    "no AS": ("REGISTER QUERY q ^SELECT * WHERE {}", "expected AS"),
    "known variable": (
        f"SELECT * {STREAM} {{ ?s ?p ?o }} AGGREGATE {{ (^?o, COUNT, {{?s}}) }}",
        "?o has a value already",
    ),
    "variable of another clause": (
        f"SELECT * {STREAM} {{ ?s ?p ?o }} "
        "AGGREGATE { (?n, COUNT, {?s}) } AGGREGATE { (?m, COUNT, {^?n}) }",
        "?n does not occur in WHERE",
    ),
    "no argument": (
        f"SELECT * {STREAM} {{ ?s ?p ?o }} AGGREGATE {{ (?n, ^SUM, {{?s}}) }}",
        "SUM needs a variable",
    ),
    "no group": (
        f"SELECT * {STREAM} {{ ?s ?p ?o }} AGGREGATE {{ (?n, COUNT, {{^}}) }}",
        "expected a variable",
    ),
    "aggregate inside": (
        f"SELECT * {STREAM} {{ {{ SELECT * {{ ?s ?p ?o }} ^AGGREGATE {{ (?n, COUNT, ?s) }} }} }}",
        "AGGREGATE belongs to the outermost query",
    ),
    "time without streams": (
        "SELECT * { ?s ?p ?o FILTER(^timestamp(?s) > 1) }",
        "timestamp() in a query without FROM STREAM",
    ),
    "time of another stream": (
        f"SELECT * {STREAM} {{ ?s ?p ?o FILTER(^timestamp(?s, <http://e/t>) > 1) }}",
        "which is no stream of this query",
    ),
    "stream by variable": ("SELECT * FROM STREAM ^?s [RANGE 1s TUMBLING] {}", "by an IRI"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_point_at_the_place(name: str) -> None:
    marked, reason = BAD[name]
    place = marked.index("^")
    text = "\n\t" + marked.replace("^", "")
    with pytest.raises(ContinuousSyntaxError) as caught:
        parse(text)
    error = caught.value
    assert reason in error.reason
    assert (error.line, error.column) == (2, place + 2)
    assert error.pointed.splitlines()[1] == "\t" + " " * place + "^"


def test_hyphens_and_commas_of_the_paper() -> None:
    query = parse(
        f"SELECT ?a-b, ?c (?c-?d AS ?e) {STREAM} WHERE {{ ?a-b <http://e/p> ?c ; <http://e/q> ?d }}"
    )
    assert query.query.variables == ("?a-b", "?c", "?e")
