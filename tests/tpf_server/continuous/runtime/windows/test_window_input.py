"""The last instant of an element in a window, and the first one without it."""

import pytest

from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.semantics import PAPER_DSTREAM, Semantics

ELEMENT = [("<urn:a>", "<urn:p>", "<urn:b>"), ("<urn:a>", "<urn:q>", "<urn:c>")]
CLOCK = "STREAM <%s> [NOW] { ?x <urn:is> ?y }"


def at_one(engine: Engine, text: str, semantics: Semantics | None = None) -> RegisteredQuery:
    """Register a query; then an element of the instant 1 arrives."""
    query = engine.register(text, semantics=semantics)
    engine.push("urn:s", ELEMENT, 1)
    return query


def tick(engine: Engine, stream: str, at: int) -> None:
    engine.push(stream, ("<urn:x>", "<urn:is>", "<urn:y>"), at)


@pytest.fixture(params=[0, 16], ids=["few windows", "many windows"])
def engine(request: pytest.FixtureRequest) -> Engine:
    made = Engine()
    for number in range(request.param):
        made.register(f"SELECT ?a {{ STREAM <urn:s> [RANGE 9ms] {{ ?a <urn:p{number}> ?b }} }}")
    return made


windows = pytest.mark.parametrize(
    ("window", "first", "last"),
    [("NOW", 1, 1), ("RANGE 10ms", 1, 11), ("RANGE 10ms SLIDE 4ms", 4, 11)],
)
patterns = pytest.mark.parametrize("pattern", ["?a <urn:p> ?b", "?a <urn:p> ?b ; <urn:q> ?c"])
clocks = pytest.mark.parametrize("clock", ["urn:s", "urn:other"])


@windows
@patterns
@clocks
def test_an_element_is_met_until_its_last_instant(
    engine: Engine, window: str, first: int, last: int, pattern: str, clock: str
) -> None:
    text = f"SELECT ?a {{ STREAM <urn:s> [{window}] {{ {pattern} }} {CLOCK % clock} }}"
    query = at_one(engine, text)
    for at in range(1, 20):
        tick(engine, clock, at)
    assert [each.at for each in query] == [*range(first, last + 1)]


@windows
@patterns
def test_a_stream_that_is_behind_has_its_own_last_instant(
    engine: Engine, window: str, first: int, last: int, pattern: str
) -> None:
    text = f"SELECT ?a {{ STREAM <urn:s> [{window}] {{ {pattern} }} {CLOCK % 'urn:s'} }}"
    query = at_one(engine, text)
    tick(engine, "urn:other", 50)
    for at in range(first, 20):
        tick(engine, "urn:s", at)
    assert [each.at for each in query] == [*range(first, last + 1)]


@pytest.mark.parametrize(
    ("window", "gone"), [("NOW", 2), ("RANGE 10ms", 12), ("RANGE 10ms SLIDE 4ms", 12)]
)
@patterns
@pytest.mark.parametrize("clock", ["urn:s", "urn:other", None])
def test_an_element_is_gone_at_the_next_instant(
    engine: Engine, window: str, gone: int, pattern: str, clock: str | None
) -> None:
    text = f"SELECT ?a {{ STREAM <urn:s> [{window}] {{ {pattern} }} }}"
    query = at_one(engine, text, PAPER_DSTREAM)
    if clock is None:
        engine.advance(50)
    else:
        tick(engine, clock, 50)
    assert [each.at for each in query] == [gone]
