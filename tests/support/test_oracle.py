"""Answers of the model of publications, and the timelines made with it.

Answers of the server are compared with those of the model in `tests/tpf_client/streaming`.
"""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from annotations.labels import Expiration, Fact, Label, key_of
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
