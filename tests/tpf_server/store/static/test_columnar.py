"""The static store answers every pattern like a scan."""

import itertools
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    QuadPattern,
    Term,
    Triple,
    blank_node,
    iri,
    literal,
    triple_term,
    variable,
)
from tests.support.examples import examples
from tests.support.stores import matches, static_store
from tpf_server.errors import StoreClosedError
from tpf_server.store.protocols import quad_columns
from tpf_server.store.static import layout

NODES = [iri(f"http://example.org/{name}") for name in "abcd"]
OBJECTS = [*NODES, literal("a"), literal("b", language="en"), blank_node("x")]
GRAPHS = [DEFAULT_GRAPH, *NODES[:2], blank_node("x")]

quads = st.builds(
    Quad, st.sampled_from(NODES), st.sampled_from(NODES), st.sampled_from(OBJECTS),
    st.sampled_from(GRAPHS),
)  # fmt: skip
triples = st.builds(Quad, st.sampled_from(NODES), st.sampled_from(NODES), st.sampled_from(OBJECTS))
variables = st.sampled_from([variable("x"), variable("y"), variable("z")])
absent = st.sampled_from([iri("http://example.org/"), literal("zzz"), Term('"\U0010ffff"')])
patterns = st.builds(
    QuadPattern,
    variables | st.sampled_from(NODES) | absent,
    variables | st.sampled_from(NODES) | absent,
    variables | st.sampled_from(OBJECTS) | absent,
    variables | st.sampled_from(GRAPHS) | absent,
)


@examples(20)
@given(
    st.lists(quads, max_size=60) | st.lists(triples, max_size=60),
    st.lists(patterns, min_size=1, max_size=30),
    st.integers(0, 8),
    st.integers(1, 8),
)
def test_any_pattern_and_page_as_the_model(
    data: list[Quad], asked: list[QuadPattern], offset: int, limit: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, static_store(Path(folder, "s"), data) as store:
        for pattern in asked:
            expected = matches(data, pattern)
            assert store.count(pattern) == len(expected)
            everything = store.quads(pattern, 0, 1000)
            assert set(everything) == expected
            assert len(everything) == len(expected), "a quad is shown twice"
            page = store.quads(pattern, offset, limit)
            assert page == everything[offset : offset + limit]
            assert store.columns(pattern, offset, limit) == quad_columns(page)


@examples(12)
@given(
    st.lists(quads, max_size=60) | st.lists(triples, max_size=60),
    st.lists(quads, max_size=60),
)
def test_which_of_many_quads_are_held(data: list[Quad], asked: list[Quad]) -> None:
    with tempfile.TemporaryDirectory() as folder, static_store(Path(folder, "s"), data) as store:
        assert set(store.held([*asked, *data])) == set(data)
        assert set(store.held(asked)) == set(asked) & set(data)


@examples(12)
@given(st.lists(quads, max_size=60) | st.lists(triples, max_size=60), st.integers(1, 5))
def test_what_is_frequent_as_counted(data: list[Quad], most: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        static_store(Path(folder, "s"), data) as store,
        pytest.MonkeyPatch.context() as patch,
    ):
        for predicate in (None, *NODES, literal("none")):
            chosen = [each for each in set(data) if predicate in (None, each.predicate)]
            terms = [each.predicate if predicate is None else each.object for each in chosen]
            found = store.frequent(predicate)
            assert dict(found) == Counter(terms)
            assert [n for _, n in found] == sorted((n for _, n in found), reverse=True)
            assert store.frequent(predicate) is found  # counted once
            store._opened().frequent.clear()
            patch.setattr("tpf_server.store.static.columnar.MOST_FREQUENT", most)
            assert store.frequent(predicate) == found[:most]
            patch.undo()


def every_shape(quad: Quad) -> list[QuadPattern]:
    """Replace each set of positions of the quad by different variables."""
    names = [variable(name) for name in "spog"]
    return [
        QuadPattern(*(quad[k] if keep[k] else names[k] for k in range(4)))
        for keep in itertools.product((True, False), repeat=4)
    ]


def test_orders_for_graphs_only_where_there_are_graphs(tmp_path: Path) -> None:
    quad = Quad(NODES[0], NODES[1], NODES[2])
    with static_store(tmp_path / "triples", [quad]) as store:
        assert store.manifest.orders == layout.TRIPLE_ORDERS
        assert store.manifest.graphs == 0
        assert store.graphs() == []
    with static_store(tmp_path / "quads", [quad, quad._replace(graph=NODES[3])]) as store:
        assert store.manifest.orders == layout.QUAD_ORDERS
        assert store.manifest.graphs == 1
        assert store.graphs() == [NODES[3]]


def test_the_empty_text_is_no_subject(tmp_path: Path) -> None:
    empty = QuadPattern(DEFAULT_GRAPH, variable("p"), variable("o"), variable("g"))
    with static_store(tmp_path / "s", [Quad(NODES[0], NODES[1], NODES[2])]) as store:
        assert store.count(empty) == 0
        assert store.quads(empty, 0, 9) == []


lexical = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
any_terms = st.one_of(
    lexical.map(literal),
    lexical.map(lambda text: literal(text, language="en-gb")),
    lexical.map(lambda text: literal(text, language="ar--rtl")),
    lexical.map(lambda text: literal(text, datatype="http://example.org/type")),
    st.from_regex(r"[a-zé\U0001F600中]{1,8}", fullmatch=True).map(
        lambda text: iri(f"http://example.org/{text}")
    ),
    st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).map(blank_node),
    lexical.map(lambda text: triple_term(Triple(NODES[0], NODES[1], literal(text)))),
)


@examples(15)
@given(st.lists(any_terms, min_size=1, max_size=40), any_terms)
def test_every_kind_of_term_comes_back(objects: list[Term], other: Term) -> None:
    data = [Quad(NODES[0], NODES[1], term) for term in objects]
    with tempfile.TemporaryDirectory() as folder, static_store(Path(folder, "s"), data) as store:
        anything = QuadPattern(variable("s"), variable("p"), variable("o"))
        found = store.quads(anything, 0, 1000)
        assert set(found) == set(data)
        # Python compares texts by code points, which is the order of their UTF-8 bytes.
        assert [quad.object for quad in found] == sorted(set(objects))
        for term in [*objects, other]:
            expected = [Quad(NODES[0], NODES[1], term)] if term in objects else []
            assert store.quads(anything._replace(object=term), 0, 9) == expected


def test_long_literals(tmp_path: Path) -> None:
    data = [Quad(NODES[0], NODES[1], literal(f"{'long 😀' * 300_000}{n}")) for n in range(3)]
    with static_store(tmp_path / "s", data) as store:
        for quad in data:
            assert store.quads(QuadPattern(*quad), 0, 9) == [quad]


def test_a_text_with_a_surrogate_is_not_found(tmp_path: Path) -> None:
    with static_store(tmp_path / "s", [Quad(NODES[0], NODES[1], literal("a"))]) as store:
        pattern = QuadPattern(variable("s"), variable("p"), Term('"\ud83d"'))
        assert store.count(pattern) == 0


def test_memos_stay_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = [Quad(NODES[0], NODES[1], literal(str(n))) for n in range(6000)]
    with static_store(tmp_path / "s", data) as store:
        for quad in data:
            assert store.count(QuadPattern(*quad)) == 1
        assert store._files is not None
        assert len(store._files.memo) <= 1024
        assert len(store._files.dictionary._memo) <= 4096


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = static_store(tmp_path / "s", [Quad(NODES[0], NODES[1], NODES[2])])
    pattern = QuadPattern(NODES[0], NODES[1], NODES[2])
    assert store.count(pattern) == 1
    store.close()
    store.close()
    with pytest.raises(StoreClosedError):
        store.count(pattern)
    with pytest.raises(StoreClosedError):
        store.quads(pattern, 0, 1)


def test_threads_read_the_same(tmp_path: Path) -> None:
    data = [Quad(NODES[n % 4], NODES[n % 3], literal(str(n))) for n in range(2000)]
    failures: list[object] = []
    with static_store(tmp_path / "s", data) as store:

        def read(seed: int) -> None:
            for n in range(100):
                quad = data[(seed * 37 + n * 11) % len(data)]
                for pattern in every_shape(quad):
                    if quad not in store.quads(pattern, 0, 2000):
                        failures.append((quad, pattern))
                        return

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
