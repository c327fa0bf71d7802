"""Static caches that unlike queries share: one evaluation, the same results."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term
from tests.support.examples import examples
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.errors import ContinuousError
from tpf_server.continuous.runtime.semantics import CQELS, PAPER
from tpf_server.continuous.runtime.static import static_rows

PREFIX = "PREFIX : <urn:> "
NAMES = "?room :in ?floor . ?floor :of ?house"
QUERIES = [
    f"SELECT ?who ?house {{ STREAM <urn:s> [RANGE 5ms] {{ ?who :at ?room }} {NAMES} }}",
    f"SELECT ?house ?p {{ STREAM <urn:s> [NOW] {{ ?p :at ?room }} {NAMES} }}",
    "SELECT (COUNT(*) AS ?n) ?h { STREAM <urn:s> [RANGE 3ms] { ?w :at ?r }"
    " ?r :in ?f . ?f :of ?h } GROUP BY ?h",
    # The same sub-query twice, and once where nothing of the stream is joined with it.
    "SELECT ?a ?b ?f ?g { STREAM <urn:s> [RANGE 9ms] { ?a :at ?r }"
    " STREAM <urn:s> [RANGE 9ms] { ?b :at ?q } ?r :in ?f . ?q :in ?g }",
    f"SELECT ?who ?house {{ STREAM <urn:s> [RANGE 5ms] {{ ?who :at ?x }} {{ {NAMES} }} }}",
    f"SELECT ?who ?floor {{ STREAM <urn:s> [RANGE 5ms] {{ ?who :at ?room }} {NAMES} }}",
]


def triple(text: str) -> tuple[Term, Term, Term]:
    one, predicate, other = (Term(f"<urn:{name}>") for name in text.split())
    return one, predicate, other


STATIC = [triple(f"r{n} in f{n % 2}") for n in range(4)] + [triple("f0 of h"), triple("f1 of k")]


def engine_with(queries, semantics=PAPER):
    engine = Engine(EngineSettings(semantics=semantics))
    graph = engine.static.memory()
    graph.add(STATIC)
    return engine, [engine.register(PREFIX + text) for text in queries]


def evaluations(monkeypatch) -> list[object]:
    """The patterns that are evaluated from now on."""
    found: list[object] = []
    whole = vars(static_rows)["evaluate_static"]

    def evaluate(dataset, patterns, *given, **more):
        if not given:
            found.append(tuple(patterns))
        return whole(dataset, patterns, *given, **more)

    monkeypatch.setattr(static_rows, "evaluate_static", evaluate)
    return found


def shared(engine) -> int:
    return len(engine.ticks.plans._shared_rows)


def test_unlike_queries_share_what_they_ask_of_static_data(monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluations(monkeypatch)
    engine, queries = engine_with(QUERIES[:3])
    assert (len(found), shared(engine)) == (1, 1)
    (cache,) = queries[2].explain()["caches"]
    assert (cache["patterns"], cache["rows"], cache["queries"]) == (
        "?r <urn:in> ?f . ?f <urn:of> ?h", 4, 3,
    )  # fmt: skip
    engine.add([triple("r9 in f1")])
    assert len(found) == 1  # what was added is followed
    engine.push("urn:s", ("<urn:me>", "<urn:at>", "<urn:r9>"), 1)
    assert [len(list(each)) for each in queries] == [1, 1, 1]
    # Others keep other columns.
    engine.register(PREFIX + QUERIES[5])
    assert (len(found), shared(engine)) == (2, 2)


def test_a_query_with_the_same_sub_query_twice_sees_them_change_one_by_one() -> None:
    engine, (query,) = engine_with([QUERIES[3]])
    for who in ("me", "you"):
        engine.push("urn:s", (f"<urn:{who}>", "<urn:at>", "<urn:r9>"), 1)
    engine.add([triple("r9 in f1")])
    assert Counter(row for each in query for row in each.rows) == Counter(
        (f"<urn:{one}>", f"<urn:{other}>", "<urn:f1>", "<urn:f1>")
        for one in ("me", "you")
        for other in ("me", "you")
    )


def test_a_cache_ends_with_its_last_query() -> None:
    engine, (first, second, *_) = engine_with(QUERIES[:2])
    first.close()
    assert shared(engine) == 1
    engine.push("urn:s", ("<urn:me>", "<urn:at>", "<urn:r1>"), 1)
    assert len(list(second)) == 1
    second.close()
    assert shared(engine) == 0


def test_a_query_that_is_refused_keeps_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = engine_with([])
    monkeypatch.setattr("tpf_server.continuous.runtime.plans.plan.Plan.start", refuse)
    with pytest.raises(ContinuousError):
        engine.register(PREFIX + QUERIES[0])
    assert shared(engine) == 0


def refuse(_plan: object) -> None:
    raise ContinuousError("no")


steps = st.lists(
    st.tuples(st.sampled_from(["push"]), st.integers(0, 5), st.integers(0, 2))
    | st.tuples(st.sampled_from(["add", "remove"]), st.sampled_from(STATIC))
    | st.tuples(st.sampled_from(["register"]), st.integers(0, len(QUERIES) - 1)),
    max_size=25,
)


@pytest.mark.parametrize("semantics", [PAPER, CQELS])
@examples(10)
@given(steps=steps, first=st.lists(st.integers(0, len(QUERIES) - 1), max_size=4))
def test_together_is_as_alone(steps, first, semantics) -> None:
    together, _ = engine_with([], semantics)
    alone: list[Engine] = []
    queries = []

    def register(number: int) -> None:
        engine, _ = engine_with([], semantics)
        engine.remove([each for each in STATIC if each not in present])
        engine.advance(at)
        alone.append(engine)
        text = PREFIX + QUERIES[number]
        queries.append((together.register(text), engine.register(text)))

    present = list(STATIC)
    at = 0
    together.advance(at)
    for number in first:
        register(number)
    for kind, value, *more in steps:
        if kind == "register":
            register(value)
        elif kind == "push":
            at += more[0]
            for each in (together, *alone):
                each.push("urn:s", (f"<urn:p{value % 2}>", "<urn:at>", f"<urn:r{value}>"), at)
        elif kind == "add" and value not in present:
            present.append(value)
            for each in (together, *alone):
                each.add([value])
        elif kind == "remove" and value in present:
            present.remove(value)
            for each in (together, *alone):
                each.remove([value])
    for one, other in queries:
        assert [(e.at, Counter(e.rows)) for e in one] == [(e.at, Counter(e.rows)) for e in other]
