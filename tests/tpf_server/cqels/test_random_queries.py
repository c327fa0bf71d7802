"""Random queries: against a recomputation, and instances that share a plan against each alone."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.continuous_reference import Arrival, Reference
from tests.support.random_continuous_queries import NODES, STATIC, QueryWriter, random_elements
from tpf_server.cqels.delivery import Emission
from tpf_server.cqels.engine import Engine
from tpf_server.cqels.semantics import PAPER, PAPER_DSTREAM, PAPER_RSTREAM, SEMANTICS

RANDOM = st.integers(0, 2**32).map(Random)


def loaded(**options: object) -> Engine:
    engine = Engine(**options)  # type: ignore[arg-type]
    for line in STATIC.strip().splitlines():
        terms = line.split(" ")[:-1]
        engine.add([terms[:3]], terms[3] if len(terms) > 3 else None)
    return engine


@settings(max_examples=100, deadline=None)
@given(RANDOM)
def test_differences(random: Random) -> None:
    text = QueryWriter(random).query()
    elements = random_elements(random, random.randint(1, 10))
    engine = loaded()
    policies = (PAPER, PAPER_DSTREAM, PAPER_RSTREAM)
    queries = [engine.register(text, semantics=policy) for policy in policies]
    reference = Reference(text, STATIC)
    before: Counter[tuple[str | None, ...]] = Counter()
    at = 0
    for stream, pause, triples in elements:
        at += pause
        reference.arrive(Arrival(stream, at, triples))
        engine.push(stream, triples, at)
        now = reference.solutions(at)
        found = [Counter(row for each in query for row in each.rows) for query in queries]
        assert found == [now - before, before - now, now], (text, elements)
        before = now


def play(random: Random, texts: list[str], *, share: bool) -> tuple[list[list[Emission]], int]:
    """What queries emit while elements come, static data change, queries come and go."""
    engine = loaded(share=share, semantics=SEMANTICS[random.choice(list(SEMANTICS))])
    emitted: list[list[Emission]] = [[] for _ in texts]
    *first, last = [(text, into.append) for text, into in zip(texts, emitted, strict=True)]
    queries = [engine.register(*each) for each in first]
    plans = len({id(query.plan) for query in queries})
    elements = random_elements(random, 14)
    closing, coming = random.randrange(40), random.randrange(20)
    at = 0
    for number, (stream, pause, triples) in enumerate(elements):
        if number == closing:
            random.choice(queries).close()
        if number == coming:
            engine.register(*last)
        if random.random() < 0.2:
            change = (random.choice(NODES), "<urn:near>", random.choice(NODES))
            random.choice([engine.add, engine.remove])([change])
        at += pause
        engine.push(stream, triples, at)
        if random.random() < 0.1:
            at += 2
            engine.advance(at)
    return emitted, plans


def test_instances_share_and_emit_as_each_alone() -> None:
    shared = 0

    @settings(max_examples=200, deadline=None)
    @given(RANDOM)
    def check(random: Random) -> None:
        nonlocal shared
        template = QueryWriter(random).query(2)
        texts = [
            template.replace("<urn:n0>", random.choice(NODES)).replace("<urn:n1>", each)
            for each in random.choices(NODES, k=5)
        ]
        seed = random.random()
        together, plans = play(Random(seed), texts, share=True)
        alone, _ = play(Random(seed), texts, share=False)
        for one, other in zip(together, alone, strict=True):
            assert [(*each[:2], Counter(each.rows), each.removed) for each in one] == [
                (*each[:2], Counter(each.rows), each.removed) for each in other
            ], texts
        shared += plans < len(texts) - 1

    check()
    assert shared > 5


def test_everything_is_emitted_for_every_instance() -> None:
    """Also where another instance has rows, and this one has none."""
    engine = Engine(semantics=PAPER_RSTREAM)
    text = "SELECT ?a { STREAM <urn:s> [NOW] { ?a <urn:p> <urn:n0> } }"
    queries = [engine.register(text.replace("n0", f"n{number}")) for number in range(3)]
    engine.push("urn:s", ("<urn:x>", "<urn:p>", "<urn:n1>"), 1)
    assert [[len(each.rows) for each in query] for query in queries] == [[0], [1], [0]]
