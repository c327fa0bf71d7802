"""Changes of static data while windows hold rows, as if made before."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import DEFAULT_GRAPH, Term
from tests.support.examples import examples
from tests.support.static_graphs import CountingGraph
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.continuous.runtime.semantics import PAPER, PAPER_RSTREAM

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
    "distinct": f"SELECT DISTINCT ?a {{ {_P.format('ALL')} ?b <urn:q> ?c . ?c <urn:r> ?d }}",
    "one pattern twice": (
        f"SELECT ?a ?e {{ {_P.format('ALL')} ?b <urn:q> ?c . ?c <urn:q> ?d . ?d <urn:q> ?e }}"
    ),
    "the same variable": f"SELECT ?a ?b {{ {_P.format('ALL')} ?b <urn:q> ?b . ?b ?x ?b }}",
    "a graph": f"SELECT ?a ?c {{ {_P.format('ALL')} GRAPH <urn:g> {{ ?b <urn:q> ?c }} }}",
    "any graph": f"SELECT ?a ?g ?c {{ {_P.format('ALL')} GRAPH ?g {{ ?b <urn:q> ?c }} }}",
    "two graphs as one": (
        "SELECT ?a ?c FROM <urn:g> FROM <urn:h> "
        f"{{ {_P.format('ALL')} ?b <urn:q> ?c . ?c <urn:r> ?b }}"
    ),
    "a condition": f"SELECT ?a ?c {{ {_P.format('ALL')} ?b <urn:q> ?c FILTER(?c != <urn:n0>) }}",
}
_NODES = [f"<urn:n{number}>" for number in range(4)]
nodes = st.sampled_from(_NODES)
arrivals = st.lists(
    st.tuples(nodes, st.sampled_from(["<urn:p>", "<urn:v>"]), nodes), min_size=1, max_size=3
)
changes = st.tuples(
    st.booleans(),
    nodes,
    st.sampled_from(["<urn:q>", "<urn:r>"]),
    nodes,
    st.sampled_from([None, "urn:g", "urn:h"]),
)
histories = st.lists(
    st.one_of(st.tuples(st.integers(0, 3), arrivals), changes), min_size=2, max_size=14
)

History = Sequence[tuple[int, list[tuple[str, str, str]]] | tuple[bool, str, str, str, str | None]]


def _change(
    engine: Engine, step: tuple[bool, str, str, str, str | None], *, whole: bool = False
) -> None:
    """Change a graph; `whole`: without saying how."""
    add, *triple, graph = step
    if not whole:
        (engine.add if add else engine.remove)([triple], graph)
        return
    name = DEFAULT_GRAPH if graph is None else engine.name(graph)
    memory = engine.static.memory(name)
    s, p, o = map(Term, triple)
    (memory.add if add else memory.remove)([(s, p, o)])
    engine.static.changed(name)


def _last(
    engine: Engine, text: str, history: History, *, before: bool, whole: bool = False
) -> Counter[object]:
    """Return the final answer.

    Args:
        engine: without data.
        text: the query.
        history: all events.
        before: make all changes of static data first.
        whole: evaluate caches anew instead of updating them.
    """
    if before:
        for step in history:
            if len(step) == 5:
                _change(engine, step)
    query = engine.register(text)
    at = 0
    for step in history:
        if len(step) == 2:
            at += step[0]
            engine.push("<urn:s>", step[1], at)
        elif not before:
            _change(engine, step, whole=whole)
    engine.push("<urn:s>", ("<urn:n0>", "<urn:else>", "<urn:n0>"), at)
    found: Counter[object] = Counter()
    for emission in query:
        found = Counter(emission.rows)
    return found


@pytest.mark.parametrize("name", QUERIES)
@examples(10)
@given(history=histories)
def test_the_order_of_changes_does_not_matter(name: str, history: History) -> None:
    """With and without known differences."""
    followed, evaluated, expected = (
        _last(
            Engine(EngineSettings(semantics=PAPER_RSTREAM)),
            QUERIES[name],
            history,
            before=before,
            whole=whole,
        )
        for before, whole in ((False, False), (False, True), (True, False))
    )
    assert followed == evaluated == expected


def test_what_follows_a_change_costs_what_it_meets() -> None:
    """Rows that are read of a large graph, counted."""
    engine = Engine(EngineSettings(semantics=PAPER))
    large = CountingGraph()
    large.add((Term(f"<urn:b{n}>"), Term("<urn:q>"), Term(f"<urn:c{n}>")) for n in range(5000))
    engine.attach(large)
    query = engine.register(
        "SELECT ?d { STREAM <urn:s> [ALL] { ?a <urn:p> ?b } ?b <urn:q> ?c . ?c <urn:r> ?d }"
    )
    engine.push("<urn:s>", ("<urn:a>", "<urn:p>", "<urn:b7>"), 1)
    engine.add([("<urn:c8>", "<urn:r>", "<urn:d>")])
    before = large.read
    engine.add([("<urn:c7>", "<urn:r>", "<urn:d>")])
    assert large.read - before < 10
    assert [row for each in query for row in each.rows] == [("<urn:d>",)]


@given(history=histories)
def test_instances_that_share_a_plan(history: History) -> None:
    """One of them is closed in between."""
    text = (
        "SELECT ?a ?c { STREAM <urn:s> [RANGE 6ms] { ?a <urn:p> ?b }"
        " ?b <urn:q> ?c . ?c <urn:r> %s }"
    )
    found = []
    for share in (True, False):
        engine = Engine(EngineSettings(semantics=PAPER, share=share))
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
                _change(engine, step, whole=place % 2 == 0)
        found.append([[(e.sequence, Counter(e.rows)) for e in each] for each in queries])
    assert found[0] == found[1]


def test_terms_may_be_written_in_other_ways() -> None:
    engine = Engine()
    query = engine.register("SELECT ?a { STREAM <urn:s> [NOW] { ?a <urn:p> ?v } ?b <urn:q> ?v }")
    written = ("<urn:b>", "<urn:q>", r'"\u0078"^^<http://www.w3.org/2001/XMLSchema#string>')
    for at, change in enumerate((engine.add, engine.remove), 1):
        change([written])
        engine.push("urn:s", (f"<urn:a{at}>", "<urn:p>", '"x"'), at)
    assert [row for each in query for row in each.rows] == [("<urn:a1>",)]
    with pytest.raises(ElementError, match="not a term"):
        engine.add([("<urn:b>", "<urn:q>", "x")], "urn:g")
    assert engine.static.names == ()
