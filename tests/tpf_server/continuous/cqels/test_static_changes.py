"""Static data that change while windows hold rows: as if they had been so from the beginning."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import DEFAULT_GRAPH, Term
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.engine.semantics import PAPER, PAPER_RSTREAM

_P = "STREAM <urn:s> [{}] {{ ?a <urn:p> ?b }}"
QUERIES = {
    "range": f"SELECT ?a ?c {{ {_P.format('RANGE 6ms')} ?b <urn:q> ?c }}",
    "slide": f"SELECT ?a ?c {{ {_P.format('RANGE 6ms SLIDE 2ms')} ?b <urn:q> ?c }}",
    "triples": f"SELECT ?a ?c {{ {_P.format('TRIPLES 3')} ?b <urn:q> ?c }}",
    "all": f"SELECT ?a ?c {{ {_P.format('ALL')} ?b <urn:q> ?c }}",
    "star": (
        "SELECT ?a ?d { STREAM <urn:s> [RANGE 6ms] { ?a <urn:p> ?b . ?a <urn:v> ?c }"
        " ?b <urn:q> ?d }"
    ),
    "two windows and two caches": (
        f"SELECT * {{ {_P.format('RANGE 5ms')} STREAM <urn:s> [RANGE 7ms] {{ ?d <urn:v> ?b }}"
        " ?b <urn:q> ?c . ?a <urn:r> ?e }"
    ),
    "static alone": "SELECT ?a ?c { ?a <urn:q> ?b . ?c <urn:r> ?b }",
}
_NODES = [f"<urn:n{number}>" for number in range(4)]
nodes = st.sampled_from(_NODES)
arrivals = st.lists(
    st.tuples(nodes, st.sampled_from(["<urn:p>", "<urn:v>"]), nodes), min_size=1, max_size=3
)
changes = st.tuples(st.booleans(), nodes, st.sampled_from(["<urn:q>", "<urn:r>"]), nodes)
histories = st.lists(
    st.one_of(st.tuples(st.integers(0, 3), arrivals), changes), min_size=2, max_size=14
)

History = Sequence[tuple[int, list[tuple[str, str, str]]] | tuple[bool, str, str, str]]


def _change(engine: Engine, step: tuple[bool, str, str, str]) -> None:
    add, *terms = step
    subject, predicate, value = map(Term, terms)
    graph = engine.static.memory()
    (graph.add if add else graph.remove)([(subject, predicate, value)])


def _last(engine: Engine, text: str, history: History, *, before: bool) -> Counter[object]:
    """What the query says at the end.

    Args:
        engine: without data.
        text: the query.
        history: what happens.
        before: whether all changes of the static data come before everything else.
    """
    if before:
        for step in history:
            if len(step) == 4:
                _change(engine, step)
    query = engine.register(text)
    at = 0
    for step in history:
        if len(step) == 2:
            at += step[0]
            engine.push("<urn:s>", step[1], at)
        elif not before:
            _change(engine, step)
            engine.static.changed(DEFAULT_GRAPH)
    engine.push("<urn:s>", ("<urn:n0>", "<urn:else>", "<urn:n0>"), at)
    found: Counter[object] = Counter()
    for emission in query:
        found = Counter(emission.rows)
    return found


@pytest.mark.parametrize("name", QUERIES)
@given(history=histories)
def test_the_order_of_changes_does_not_matter(name: str, history: History) -> None:
    """The whole result after the last arrival."""
    found, expected = (
        _last(Engine(semantics=PAPER_RSTREAM), QUERIES[name], history, before=before)
        for before in (False, True)
    )
    assert found == expected


@given(history=histories)
def test_instances_that_share_a_plan(history: History) -> None:
    """Queries that differ in a constant, of which one is closed in between."""
    text = (
        "SELECT ?a ?c { STREAM <urn:s> [RANGE 6ms] { ?a <urn:p> ?b }"
        " ?b <urn:q> ?c . ?c <urn:r> %s }"
    )
    found = []
    for share in (True, False):
        engine = Engine(semantics=PAPER, share=share)
        queries = [engine.register(text % node) for node in (*_NODES, _NODES[0])]
        assert len({id(query.plan) for query in queries}) == (2 if share else len(queries))
        at = 0
        for place, step in enumerate(history):
            if place == len(history) // 2:
                queries[-2].close()
            if len(step) == 2:
                at += step[0]
                engine.push("<urn:s>", step[1], at)
            else:
                _change(engine, step)
                engine.static.changed(DEFAULT_GRAPH)
        found.append([[(e.sequence, Counter(e.rows)) for e in each] for each in queries])
    assert found[0] == found[1]
