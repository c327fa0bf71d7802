"""Prepared exchanges of stores find the same changes."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tests.support.continuous_site import EPOCH, Site, element
from tests.support.examples import examples
from tests.support.static_graphs import HeldStore
from tests.tpf_server.continuous.languages.cqels.test_static_changes import QUERIES, arrivals
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.semantics import PAPER_RSTREAM
from tpf_server.continuous.runtime.static.static_data import StoreGraph
from tpf_server.continuous.runtime.static.static_rows import Preparation
from tpf_server.store.static.columnar import ColumnarStore

PERIODIC = {
    "a join": "{ ?a <urn:p> ?b . ?b <urn:q> ?c . ?c <urn:r> ?d }",
    "a filter": "{ ?a <urn:p> ?b . ?b <urn:q> ?c FILTER(?c != <urn:n0>) }",
    "not there": "{ ?a <urn:p> ?b FILTER NOT EXISTS { ?b <urn:q> ?b } }",
    "of any graph": "{ ?a <urn:p> ?b GRAPH ?g { ?b <urn:q> ?c } }",
}
Triples = Sequence[tuple[str, str, str]]
nodes = st.sampled_from([f"<urn:n{number}>" for number in range(4)])
triples = st.lists(st.tuples(nodes, st.sampled_from(["<urn:q>", "<urn:r>"]), nodes), max_size=10)
stores = st.dictionaries(
    st.sampled_from([DEFAULT_GRAPH, Term("<urn:g>"), Term("<urn:h>")]), triples
)


def graph(
    version: str, name: str, quads: Triples, read: Callable[[], None] = lambda: None
) -> StoreGraph:
    held = [Quad(Term(s), Term(p), Term(o), Term(name)) for s, p, o in quads]
    return StoreGraph(cast("ColumnarStore", HeldStore(version, held, read)), Term(name))


def exchange(engine: Engine, version: str, parts: dict[Term, Triples], how: str) -> None:
    """Exchange all stores, prepared or not."""
    graphs = {name: [graph(version, name, each)] for name, each in parts.items()}
    prepared = None
    if how != "anew":
        static = engine.static
        prepared = Preparation(static.copy(), static.with_stores(graphs))
        if how == "prepared":
            static.ask(graphs, prepared)
        prepared.run()
    engine.static.exchange(graphs, prepared)


@pytest.mark.parametrize("name", [*QUERIES, *PERIODIC])
@examples(4)
@given(first=stores, second=stores, memory=triples, one=arrivals, two=arrivals)
def test_what_was_prepared_is_what_is_found_anew(
    name: str,
    first: dict[Term, Triples],
    second: dict[Term, Triples],
    memory: Triples,
    one: Triples,
    two: Triples,
) -> None:
    found = []
    for how in ("prepared", "not asked", "anew"):
        engine = Engine(EngineSettings(semantics=PAPER_RSTREAM))
        engine.add(list(memory), "urn:g")
        exchange(engine, "1", first, "anew")
        emitted: list[tuple[int, Counter[object]]] = []

        def take(emission: Emission | PeriodicAnswer, emitted: Any = emitted) -> None:
            emitted.append((emission.at, Counter(emission.rows)))

        if name in QUERIES:
            engine.register(QUERIES[name], take)
        else:
            text = f"SELECT * FROM STREAM <urn:s> [RANGE 4ms STEP 1ms] {PERIODIC[name]}"
            engine.register_csparql(text, take)
        engine.push("<urn:s>", one, 1)
        exchange(engine, "2", second, how)
        engine.push("<urn:s>", two, 2)
        exchange(engine, "3", first, how)
        engine.push("<urn:s>", [("<urn:n0>", "<urn:else>", "<urn:n0>")], 3)
        engine.finish()
        found.append(emitted)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("language", ["cqels", "csparql"])
def test_others_push_and_get_answers_while_a_store_is_exchanged(language: str) -> None:
    site = Site()
    reading, pushed = threading.Event(), threading.Event()
    text = {
        "cqels": "SELECT ?a ?c { STREAM <http://localhost/s> [RANGE 9s] { ?a <urn:p> ?b } "
        "?b <urn:q> ?c }",
        "csparql": "SELECT ?a ?c FROM STREAM <http://localhost/s> [RANGE 9s STEP 1s] "
        "{ ?a <urn:p> ?b . ?b <urn:q> ?c }",
    }[language]

    def read() -> None:
        """Read the new store until somebody else was served."""
        if threading.current_thread() is exchanging:
            reading.set()
            assert pushed.wait(60)

    exchanging = threading.Thread(
        target=lambda: site.service.exchange_static(
            {DEFAULT_GRAPH: [graph("2", DEFAULT_GRAPH, [("<urn:b>", "<urn:q>", '"new"')], read)]}
        )
    )
    old = [graph("1", DEFAULT_GRAPH, [("<urn:b>", "<urn:q>", '"old"')])]
    site.service.exchange_static({DEFAULT_GRAPH: old})
    assert site.register(text, name="joined").status_code == 201
    assert site.push(element(1, "<urn:a1>", "<urn:b>")).ok
    exchanging.start()
    assert reading.wait(60)
    # It is being prepared: elements come, queries answer, with what is there still.
    assert site.push(element(2, "<urn:a2>", "<urn:b>")).ok
    assert site.push(element(1_001, "<urn:a3>", "<urn:none>")).ok
    assert site.register(text, name="later").status_code == 201
    assert "old" in site.results("joined", params={"follow": "false"}).text
    assert "new" not in site.results("joined", params={"follow": "false"}).text
    pushed.set()
    exchanging.join(60)
    for second, who in ((2, "a4"), (3, "a5")):
        site.clock.advance_to(EPOCH + timedelta(seconds=second))
        assert site.push(element(1000 * second, f"<urn:{who}>", "<urn:b>")).ok
    site.service.advance()
    for name in ("joined", "later"):
        last = str(site.emissions(name)[-1])
        assert "new" in last
        assert "old" not in last
