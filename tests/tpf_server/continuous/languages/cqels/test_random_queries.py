"""Random queries against a recomputation, and sharing instances against each alone."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Literal, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pyoxigraph as ox
from hypothesis import example, given

from tests.support.continuous_reference import (
    Arrival,
    Bag,
    Beside,
    Clocks,
    Tick,
    compare_emissions,
    emitted,
)
from tests.support.examples import examples
from tests.support.random_continuous_queries import (
    NODES,
    RANDOM,
    STATIC,
    QueryWriter,
    Triple,
    loaded,
    random_elements,
)
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.errors import CallbackError
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.semantics import (
    PAPER,
    PAPER_DSTREAM,
    SEMANTICS,
)

FLAT = (
    "SELECT ?a ?c { STREAM <urn:s1> [W] { ?a <urn:p> ?b . ?a <urn:q> <urn:n1> }"
    " STREAM <urn:s2> [W] { ?b <urn:p> ?c } }",
    "SELECT ?b (COUNT(?a) AS ?k) (MAX(?a) AS ?l)"
    " { STREAM <urn:s1> [W] { ?a <urn:p> ?b . ?a <urn:q> <urn:n1> . ?a <urn:v> ?v } } GROUP BY ?b",
    "SELECT DISTINCT ?a ?c"
    " { STREAM <urn:s1> [W] { ?a <urn:p> ?b } ?b <urn:near> ?c . <urn:n1> <urn:near> ?b }",
    "SELECT ?a ?b { STREAM <urn:s1> [W] { ?a <urn:p> ?b } STREAM <urn:s1> [W] { ?b <urn:p> ?a }"
    " FILTER(?a != <urn:n1>) }",
    "SELECT ?a ?v ?w { STREAM <urn:s1> [W] { ?a <urn:p> <urn:n1> . ?a <urn:v> ?v }"
    " STREAM <urn:s1> [W] { ?a <urn:v> ?w } FILTER(?v < ?w) }",
)
"""Queries of the kind that share plans."""
NEAR: set[Triple] = {
    (s, p, o) for s, p, o, *_ in (each.split() for each in STATIC.splitlines() if "near" in each)
}


@examples(30)
@given(RANDOM)
@example(Random(3319325))
@example(Random(28841758))
@example(Random(3005773))
def test_differences(random: Random) -> None:
    text = QueryWriter(random).query()
    elements = random_elements(random, random.randint(1, 10))
    compare_emissions(loaded(), text, Beside(text, STATIC), elements)


@examples(30)
@given(RANDOM)
@example(Random(2227))
@example(Random(5101))
@example(Random(3000750))
@example(Random(3002993))
def test_streams_that_are_ahead_and_behind(random: Random) -> None:
    """Clocks are ahead, behind and set back."""
    text = QueryWriter(random).query()
    # Many windows are looked after in another way than few.
    with patch("tpf_server.continuous.runtime.windows.window_registry._FEW", len(text) % 2 * 16):
        play_apart(random, text)


def play_apart(random: Random, text: str) -> None:
    """Push elements by the time of their streams, and check after each."""
    engine = loaded()
    # Another one, of whose windows and instants it does not notice anything.
    engine.register(QueryWriter(Random(text)).query(2), lambda _: None, semantics=PAPER)
    came, went = [engine.register(text, semantics=each) for each in (PAPER, PAPER_DSTREAM)]
    beside = Beside(text, STATIC)
    clocks = Clocks(("urn:s1", "urn:s2"))
    for name in clocks.streams:
        engine.create_stream(name)
    far = random.choice([0, 2, 20])
    times = {name: random.randint(0, far) for name in clocks.streams}
    clock = random.choice([0, far])
    told = random.random() < 0.5
    dropped = 0
    for stream, pause, triples in random_elements(random, random.randint(1, 12)):
        if random.random() < 0.1:
            times[stream] = max(0, times[stream] + random.randint(-far, far))
        if told and random.random() < 0.3:
            clock = max(0, clock + random.choice([0, 1, 2, 5, -far]))
            if random.random() < 0.5:
                engine.present = clocks.present = clock
            ticks = beside.advance(clock, clocks)
            engine.advance(clock)
            check(ticks, came, went)
        times[stream] += pause
        late = clocks.late(stream, times[stream])
        dropped += late
        arrival = Arrival(stream, times[stream], triples)
        ticks = [] if late else beside.arrive(arrival, clocks)
        give(engine, arrival, random.choice(["element", "record", "batch"]))
        check(ticks, came, went)
        assert engine.dropped == dropped


def check(ticks: list[Tick], came: RegisteredQuery, went: RegisteredQuery) -> None:
    """Compare emissions with a recomputation."""
    assert emitted(came) == [(when, new) for when, new, _, _ in ticks if new], came.query
    assert emitted(went) == [(when, old) for when, _, old, _ in ticks if old], went.query


def give(engine: Engine, arrival: Arrival, way: str) -> None:
    """Push an element, as a record or batch if it has such a shape."""
    stream, at, triples = arrival.stream, arrival.at, arrival.triples
    subject = triples[0][0]
    names = [predicate for _, predicate, _ in triples]
    if way == "element" or len({s for s, _, _ in triples}) > 1 or len(set(names)) < len(names):
        engine.push(stream, triples, at)
        return
    feed = engine.record_feed(stream, names)
    values = [value for _, _, value in triples]
    if way == "record":
        feed.push(subject, values, at)
    else:
        columns = pa.record_batch({name: [each] for name, each in zip(names, values, strict=True)})
        feed.push_batch(pa.array([subject]), columns, pa.array([at]))


TEMPLATE = (("?a", "<urn:made>", "?b"), ("?b", "<urn:by>", "?c"))


def constructed(solutions: Bag) -> Bag:
    """The triples of the template, of solutions over ?a ?b ?c."""
    found: Bag = Counter()
    for row, count in solutions.items():
        values = dict(zip(("?a", "?b", "?c"), row, strict=True))
        for pattern in TEMPLATE:
            triple = tuple(values.get(term, term) for term in pattern)
            if None not in triple and str(triple[0])[0] != '"':
                found[triple] += count
    return found


@examples(15)
@given(RANDOM)
def test_triples_are_constructed_of_what_is_new(random: Random) -> None:
    body = QueryWriter(random).group()
    engine = loaded()
    template = " . ".join(map(" ".join, TEMPLATE))
    query = engine.register(f"CONSTRUCT {{ {template} }} WHERE {{ {body} }}", semantics=PAPER)
    beside = Beside(f"SELECT ?a ?b ?c WHERE {{ {body} }}", STATIC)
    at = 0
    for stream, pause, triples in random_elements(random, random.randint(1, 10)):
        at += pause
        beside.reference.arrive(Arrival(stream, at, triples))
        engine.push(stream, triples, at)
        expected = [(when, constructed(new)) for when, new, _, _ in beside.seen(at)]
        found = [each for each in emitted(query) if each[1]]
        assert found == [each for each in expected if each[1]], body


class BrokenError(Exception):
    """An error of a callback."""


class _Running(NamedTuple):
    """A running query with its recomputation.

    Args:
        query: the query.
        place: of its emissions in a tick of the recomputation.
        beside: the recomputation.
        rows: its emissions.
        broken: not empty once its callback raises.
    """

    query: RegisteredQuery
    place: Literal[1, 2]
    beside: Beside
    rows: list[tuple[int, Bag]]
    broken: list[bool]


@examples(15)
@given(RANDOM)
@example(Random(405954586))
@example(Random(1001440))
@example(Random(2007141))
def test_events_between_elements(random: Random) -> None:
    """Queries come and go, static data change, callbacks raise."""
    engine = loaded(share=random.random() < 0.8)
    writer = QueryWriter(random)
    texts = [writer.query(2) for _ in range(2)]
    running: list[_Running] = []
    present = set(NEAR)

    def register() -> None:
        text = random.choice(texts)
        for name in ("<urn:n0>", "<urn:n1>"):
            text = text.replace(name, random.choice(NODES))
        rows: list[tuple[int, Bag]] = []
        broken: list[bool] = []

        def take(emission: Emission) -> None:
            if broken:
                raise BrokenError
            rows.append((emission.at, Counter(emission.rows)))

        store = ox.Store()
        store.load(STATIC.encode(), format=ox.RdfFormat.N_QUADS)
        beside = Beside(text, store, engine.time)
        for triple in NEAR - present:
            beside.reference.change(triple, added=False)
        for triple in present - NEAR:
            beside.reference.change(triple, added=True)
        goes = len(text) % 2
        query = engine.register(text, take, semantics=PAPER_DSTREAM if goes else PAPER)
        running.append(_Running(query, 2 if goes else 1, beside, rows, broken))

    def check(at: int) -> None:
        begun = engine.time is not None
        for each in tuple(running):
            query, place, beside, rows, broken = each
            ticks = beside.seen(at, begun=begun)
            expected = [(tick[0], tick[place]) for tick in ticks if tick[place]]
            if broken and expected:
                assert query.state == "stopped"
                assert isinstance(query.error, CallbackError)
                running.remove(each)
            else:
                assert query.state == "running"
                assert rows == expected, query.query
            rows.clear()

    at = 0
    register()
    for stream, pause, triples in random_elements(random, random.randint(1, 14)):
        match random.randrange(8):
            case 0 | 1 if len(running) < 5:
                register()
            case 2 if running:
                running.pop(random.randrange(len(running))).query.close()
            case 3:
                triple = (random.choice(NODES), "<urn:near>", random.choice(NODES))
                added = triple not in present
                (engine.add if added else engine.remove)([triple])
                present ^= {triple}
                for each in running:
                    each.beside.reference.change(triple, added=added)
                check(at)
            case 4 if running:
                random.choice(running).broken.append(True)
            case 5:
                at += 2
                engine.advance(at)
                check(at)
        at += pause
        for each in running:
            each.beside.reference.arrive(Arrival(stream, at, triples))
        engine.push(stream, triples, at)
        check(at)


def play(random: Random, texts: list[str], *, together: bool) -> tuple[list[list[Emission]], int]:
    """Play elements, changes of static data, and queries that come, fail and go.

    Returns:
        The emissions of each query, and the number of shared plans.
    """
    policy = SEMANTICS[random.choice(list(SEMANTICS))]
    engines = [loaded(semantics=policy) for _ in range(1 if together else len(texts))]
    emitted: list[list[Emission]] = [[] for _ in texts]
    comes = [max(0, random.randrange(-14, 14)) for _ in texts]
    goes = [random.randrange(40) for _ in texts]
    fails = [random.randrange(1, 40) for _ in texts]
    queries: dict[int, RegisteredQuery] = {}

    def taker(number: int) -> Callable[[Emission], None]:
        def take(emission: Emission) -> None:
            emitted[number].append(emission)
            if len(emitted[number]) == fails[number]:
                raise ArithmeticError(number)

        return take

    elements = random_elements(random, 14)
    spared = 0
    at = 0
    for step, (stream, pause, triples) in enumerate(elements):
        for number, text in enumerate(texts):
            if comes[number] == step:
                engine = engines[0 if together else number]
                queries[number] = engine.register(text, taker(number))
            if goes[number] == step and number in queries:
                queries.pop(number).close()
        running = [each.plan for each in queries.values() if each.plan is not None]
        spared = max(spared, len(running) - len(set(running)))
        change = None
        if random.random() < 0.2:
            change = (random.choice(NODES), "<urn:near>", random.choice(NODES))
        adds, passes = random.random() < 0.5, random.random() < 0.1
        at += pause
        for engine in engines:
            if change is not None:
                (engine.add if adds else engine.remove)([change])
            engine.push(stream, triples, at)
            if passes:
                engine.advance(at + 2)
        at += 2 * passes
    for each in queries.values():
        each.close()
    for engine in engines:
        assert not engine.ticks.plans.plans
        assert not engine.ticks.plans._templates
        assert not len(engine.ticks.windows)
    return emitted, spared


def compare(random: Random, texts: list[str]) -> int:
    """Compare queries together with each alone; return the number of shared plans."""
    seed = random.random()
    # Many windows and plans are looked after in other ways than few.
    few = random.choice([0, 2, 16])
    with (
        patch("tpf_server.continuous.runtime.windows.window_registry._FEW", few),
        patch("tpf_server.continuous.runtime.plans.plan_registry._FEW", few),
        patch("tpf_server.continuous.runtime.tick_queries._INTERVAL", 1),
    ):
        together, plans = play(Random(seed), texts, together=True)
    alone, _ = play(Random(seed), texts, together=False)
    for one, other in zip(together, alone, strict=True):
        assert [(*each[:2], Counter(each.rows), each.removed) for each in one] == [
            (*each[:2], Counter(each.rows), each.removed) for each in other
        ], texts
    return plans


def test_queries_together_emit_as_each_alone() -> None:
    """Whenever they are registered, and whatever becomes of the others."""
    spared = 0

    @examples(40)
    @given(RANDOM)
    def check(random: Random) -> None:
        nonlocal spared
        writer = QueryWriter(random)
        template = writer.query(2)
        if random.random() < 0.5:
            first, *parts = random.choice(FLAT).split("[W]")
            template = first + "".join(f"[{writer.window()}]{part}" for part in parts)
        texts = [
            template.replace("<urn:n0>", random.choice(NODES)).replace("<urn:n1>", each)
            for each in random.choices(NODES, k=5)
        ]
        spared += compare(random, texts)

    check()
    assert spared > 25
