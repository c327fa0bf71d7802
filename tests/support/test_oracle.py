"""The model of publications by hand-made cases, and the timelines made with it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from annotations.errors import LabelError, OverlapError
from annotations.labels import Expiration, Fact, Interval, Label, key_of
from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, Variable, iri, literal
from tests.support.examples import examples
from tests.support.oracle import Publications, bag, match_patterns, select, store_of
from tests.support.timelines import SOME_GRAPHS, Timeline, TimelineLabelling, timelines

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
S, P, G = (iri(f"http://example.org/{name}") for name in "spg")


def minute(count: int) -> datetime:
    return NOON + timedelta(minutes=count)


def fact(value: str, label: Label, graph: Term = DEFAULT_GRAPH) -> Fact:
    return Fact(Quad(S, P, literal(value), graph), label)


def until(count: int) -> Expiration:
    return Expiration(minute(count))


def between(start: int, end: int) -> Interval:
    return Interval(minute(start), minute(end))


def values(model: Publications, count: int) -> list[str]:
    return [quad.object.strip('"') for quad in model.valid_at(minute(count))]


def published(*batches: tuple[int, Fact]) -> Publications:
    model = Publications()
    for count, one in batches:
        model.publish([one], minute(count))
    return model


def test_an_expiring_fact_holds_until_it_expires() -> None:
    model = published((0, fact("a", until(2))))
    assert [values(model, count) for count in (0, 1, 2, 3)] == [["a"], ["a"], [], []]


def test_an_expiring_fact_replaces_the_one_of_its_key() -> None:
    model = published((0, fact("a", until(5))), (1, fact("b", until(2))))
    assert [values(model, count) for count in (1, 2)] == [["b"], []]


def test_a_renewal_lasts_longer() -> None:
    model = published((0, fact("a", until(2))), (1, fact("a", until(4))))
    assert [values(model, count) for count in (2, 3, 4)] == [["a"], ["a"], []]


def test_another_graph_is_another_fact() -> None:
    model = published((0, fact("a", until(5))), (1, fact("b", until(5), G)))
    assert values(model, 2) == ["a", "b"]


def test_the_key_may_be_the_whole_triple() -> None:
    model = Publications(key="triple")
    model.publish([fact("a", until(5)), fact("b", until(5))], NOON)
    assert values(model, 2) == ["a", "b"]
    model.publish([fact("a", until(3))], minute(1))
    assert values(model, 4) == ["b"]


def test_an_interval_ends_the_one_that_is_open_at_its_start() -> None:
    model = published((0, fact("a", between(0, 9))), (2, fact("b", between(2, 4))))
    assert [values(model, count) for count in (0, 1, 2, 3, 4)] == [["a"], ["a"], ["b"], ["b"], []]


def test_an_interval_corrects_the_one_with_its_start() -> None:
    model = published((0, fact("a", between(0, 9))), (1, fact("b", between(0, 4))))
    assert [values(model, count) for count in (0, 3, 4)] == [["b"], ["b"], []]


def test_an_interval_of_the_future_ends_an_expiring_fact_at_its_start() -> None:
    model = published((0, fact("a", until(9))), (1, fact("b", between(3, 4))))
    assert [values(model, count) for count in (2, 3, 4)] == [["a"], ["b"], []]


def test_an_interval_of_now_replaces_an_expiring_fact() -> None:
    model = published((0, fact("a", until(9))), (1, fact("b", between(1, 4))))
    assert [values(model, count) for count in (1, 4)] == [["b"], []]


def test_an_expiring_fact_ends_the_interval_of_now() -> None:
    model = published((0, fact("a", between(0, 9))), (2, fact("b", until(4))))
    assert [values(model, count) for count in (2, 3, 4)] == [["b"], ["b"], []]
    model = published((0, fact("a", between(0, 9))), (0, fact("b", until(4))))
    assert values(model, 0) == ["b"]


@pytest.mark.parametrize("late", [until(4), between(1, 4)])
def test_a_label_that_reaches_into_a_later_interval_is_refused(late: Label) -> None:
    model = published((0, fact("a", between(3, 5))))
    assert not model.accepts([fact("b", late)], minute(1))
    with pytest.raises(OverlapError):
        model.publish([fact("b", late)], minute(1))
    assert [values(model, count) for count in (2, 3)] == [[], ["a"]]


def test_a_batch_is_taken_whole_or_not_at_all() -> None:
    model = published((0, fact("a", until(5))))
    other = Fact(Quad(P, P, P), until(1))
    with pytest.raises(LabelError, match="ended"):
        model.publish([fact("b", until(5)), other], minute(1))
    with pytest.raises(LabelError, match="needs a label"):
        model.publish([fact("b", until(5)), Fact(Quad(P, P, P))], minute(1))
    with pytest.raises(OverlapError):
        model.publish([fact("b", until(5)), fact("c", until(5))], minute(1))
    assert values(model, 1) == ["a"]


def test_answers_are_multisets_over_what_holds() -> None:
    model = Publications([Quad(P, P, literal("a")), Quad(G, P, literal("a"), G)])
    model.publish([fact("a", until(2))], NOON)
    query = "SELECT ?o WHERE { ?s ?p ?o }"
    one = {"?o": '"a"'}
    assert model.answer(query, minute(1)) == bag([one, one])
    assert model.answer(query, minute(2)) == bag([one])
    assert model.answer(query, minute(1), union_default=True) == bag([one, one, one])
    assert len(model.facts()) == 3


def test_unbound_variables_are_absent() -> None:
    store = store_of([Quad(S, P, literal("a"))])
    assert select(store, "SELECT ?x ?y WHERE { ?x ?p ?o OPTIONAL { ?o ?p ?y } }") == [{"?x": S}]


def test_patterns_with_graphs() -> None:
    store = store_of([Quad(S, P, P), Quad(S, P, G, G)])
    s, o, g = Variable("?s"), Variable("?o"), Variable("?g")
    found = match_patterns(store, [QuadPattern(s, P, o, g)], {"?s": S})
    assert bag(found) == bag([{"?s": S, "?o": P, "?g": ""}, {"?s": S, "?o": G, "?g": G}])
    assert match_patterns(store, [QuadPattern(s, P, o, G)]) == [{"?s": S, "?o": G}]
    assert match_patterns(store, [QuadPattern(s, P, o)]) == [{"?s": S, "?o": P}]
    # The object of one lies in the graph of another; the default graph is no object.
    both = [QuadPattern(s, P, o, g), QuadPattern(s, P, g, Variable("?h"))]
    assert match_patterns(store, both) == [{"?s": S, "?o": G, "?g": G, "?h": G}]
    assert match_patterns(store, [QuadPattern(g, P, o)], {"?g": Term("")}) == []


@pytest.mark.parametrize("labelling", ["expiration", "interval", "mixed"])
def test_timelines_are_accepted_and_hold_one_version_at_a_time(
    labelling: TimelineLabelling,
) -> None:
    @examples(50)
    @given(timeline=timelines(labelling, universe=SOME_GRAPHS))
    def check(timeline: Timeline) -> None:
        assert [batch.at for batch in timeline.batches] == sorted(b.at for b in timeline.batches)
        for instant in timeline.instants():
            facts = timeline.publications(instant).facts()
            keys = [key_of(one.quad) for one in facts if one.label and one.valid_at(instant)]
            assert len(keys) == len(set(keys))

    check()


def _changes(timeline: Timeline) -> list[tuple[Fact, Fact, datetime]]:
    """Pair each fact with the next one of its key, and the instant."""
    last: dict[tuple[Term, Term, Term], Fact] = {}
    found = []
    for at, facts in timeline.batches:
        for one in facts:
            key = (one.quad.subject, one.quad.predicate, one.quad.graph)
            if key in last:
                found.append((last[key], one, at))
            last[key] = one
    return found


@pytest.mark.parametrize(
    "happens",
    [
        lambda t: any(a.quad == b.quad and a.valid_at(at) for a, b, at in _changes(t)),
        lambda t: any(a.quad != b.quad and a.valid_at(at) for a, b, at in _changes(t)),
        lambda t: any(
            a.quad != b.quad and a.label and a.label.end == at for a, b, at in _changes(t)
        ),
        lambda t: any(a.label and a.label.end < at for a, _, at in _changes(t)),
        lambda t: (
            {quad.predicate for quad in t.static}
            & {one.quad.predicate for batch in t.batches for one in batch.facts}
        ),
        lambda t: len({batch.at for batch in t.batches}) < len(t.batches),
    ],
    ids=["renewed", "changed early", "changed at expiry", "vanished", "mixed", "same instant"],
)
def test_everything_happens_in_some_timeline(happens: object) -> None:
    quick = settings(
        max_examples=2000,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    assert callable(happens)
    find(timelines("expiration"), lambda timeline: bool(happens(timeline)), settings=quick)
