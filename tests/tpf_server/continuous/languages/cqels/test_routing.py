"""All routings of joins give the same answers."""

from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from typer.testing import CliRunner

from tests.support.continuous_reference import Beside, compare_emissions
from tests.support.examples import examples
from tests.support.random_continuous_queries import NODES, RANDOM, STATIC, loaded
from tpf_client.dataflow.operators.multiway_join import ROUTINGS, Routing
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.semantics import PAPER, PAPER_DSTREAM
from tpf_server.continuous.service.cli import app

PATTERNS = (
    "STREAM <urn:s{s}> [{w}] {{ {a} <urn:p> {b} }}",
    "STREAM <urn:s{s}> [{w}] {{ {a} <urn:q> {b} }}",
    "{a} <urn:near> {b} .",
)
WINDOWS = ("NOW", "RANGE 3ms", "RANGE 9ms SLIDE 2ms", "TRIPLES 3", "ALL")


def joined(random: Random) -> str:
    """A join of three to five windows and static patterns."""
    parts = []
    for place in range(random.randint(3, 5)):
        a, b = random.choices(("?a", "?b", "?c", "?d"), k=2)
        pattern = PATTERNS[0] if not place else random.choice(PATTERNS)
        parts.append(pattern.format(s=random.randint(1, 2), w=random.choice(WINDOWS), a=a, b=b))
    condition = random.choice(("", "FILTER(?a != ?b)", "FILTER(?c = <urn:n1> || ?d != ?a)"))
    return f"SELECT ?a ?b ?c ?d WHERE {{ {' '.join(parts)} {condition} }}"


@examples(12)
@given(RANDOM)
def test_each_routing_is_right(random: Random) -> None:
    """Recomputed while elements and static triples come and go."""
    text = joined(random)
    elements = [
        (
            f"urn:s{random.randint(1, 2)}",
            random.choice((0, 1, 1, 4)),
            ((random.choice(NODES), random.choice(("<urn:p>", "<urn:q>")), random.choice(NODES)),),
        )
        for _ in range(random.randint(1, 14))
    ]
    with patch("tpf_server.continuous.runtime.tick_queries._INTERVAL", 2):
        engine = loaded(routing=random.choice(ROUTINGS))
        compare_emissions(engine, text, Beside(text, STATIC), elements, (PAPER, PAPER_DSTREAM))


STAR = (
    "SELECT * { STREAM <urn:s0> [RANGE 99ms] { ?k <urn:p0> ?a }"
    " STREAM <urn:s1> [RANGE 99ms] { ?k <urn:p1> ?b }"
    " STREAM <urn:s2> [RANGE 99ms] { ?k <urn:p2> ?c } }"
)


def route(engine: Engine) -> list[str]:
    """Return the route of rows of the first stream."""
    (query,) = engine.queries.values()
    found: list[str] = query.explain()["joins"][0]["inputs"][0]["route"]
    return [label.split()[1] for label in found]


@pytest.mark.parametrize("routing", ROUTINGS)
@patch("tpf_server.continuous.runtime.tick_queries._INTERVAL", 8)
@patch("tpf_server.continuous.runtime.tick_queries._ADAPTATION", 16)
def test_when_routes_change(routing: Routing) -> None:
    """The densest stream becomes the sparsest."""
    engine = Engine(EngineSettings(routing=routing))
    query = engine.register(STAR)

    def push(stream: int, count: int, at: int) -> None:
        for number in range(count):
            triple = (f"<urn:k{number % 3}>", f"<urn:p{stream}>", f'"{number}"')
            engine.push(f"urn:s{stream}", triple, at)

    seen = []
    for phase, few in enumerate((1, 2)):
        at = 1000 * (phase + 1)
        push(few, 2, at)
        push(3 - few, 30, at)
        for _ in range(100):
            push(0, 2, at)
        seen.append(route(engine))
    if routing == "fixed":
        assert seen[0] == seen[1]
    else:
        assert seen == [["<urn:s1>", "<urn:s2>"], ["<urn:s2>", "<urn:s1>"]]
    rerouted = query.explain()["joins"][0]["rerouted"]
    assert routing == "per-tuple" or rerouted < 10
    assert rerouted > 0 or routing == "fixed"


def test_an_unknown_routing_is_refused() -> None:
    arguments = ["run", STAR, "--routing", "best"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert "'best' is none of reviewed, fixed, per-tuple" in refused.stderr
    assert CliRunner().invoke(app, [*arguments[:3], "per-tuple", "--explain"]).exit_code == 0
