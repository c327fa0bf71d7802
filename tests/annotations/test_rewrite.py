"""Rewritten patterns in another engine find the labelled facts."""

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.instants import instant_term
from annotations.labels import Expiration, Fact, Interval, Label, Labelling, at_instant, overlaps
from annotations.methods import METHODS
from annotations.methods.base import LabelForm, RewriteOptions, Rewriting
from annotations.methods.method import Method
from annotations.namespaces import DEFAULT_VOCABULARY, RDF_REIFIES, RDF_SUBJECT
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    Term,
    TriplePattern,
    Variable,
    iri,
    is_variable,
    literal,
)
from tests.support.facts import NAMING, older_intervals, points
from tests.support.oracle import match_patterns, store_of

every_labelling = pytest.mark.parametrize("labelling", ["expiration", "interval"])

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
A, B, C, D = (iri(f"http://example.org/{name}") for name in "abcd")
RESOURCES = st.sampled_from([A, B, C])
PREDICATES = st.sampled_from([A, D, RDF_SUBJECT, RDF_REIFIES])
OBJECTS = st.sampled_from([A, B, D, literal("x"), literal('"', language="en"), instant_term(NOON)])
QUADS = st.builds(Quad, RESOURCES, PREDICATES, OBJECTS, st.sampled_from([DEFAULT_GRAPH, D]))
HOURS = st.integers(0, 4).map(lambda hours: NOON + timedelta(hours=hours))
VARIABLES = st.sampled_from([Variable(f"?{name}") for name in "xyz"])
PATTERNS = st.builds(
    TriplePattern,
    st.one_of(VARIABLES, VARIABLES, RESOURCES),
    st.one_of(VARIABLES, PREDICATES, st.just(DEFAULT_VOCABULARY.expiration)),
    st.one_of(VARIABLES, VARIABLES, OBJECTS),
)


@st.composite
def facts_labelled(draw: st.DrawFn, labelling: Labelling) -> list[Fact]:
    def label() -> Label:
        start = draw(HOURS)
        if labelling == "expiration":
            return Expiration(start)
        return Interval(start, start + timedelta(hours=draw(st.integers(1, 2))))

    drawn = draw(st.lists(QUADS, max_size=8))
    facts = list(dict.fromkeys(Fact(quad, label()) for quad in drawn))
    static = [Fact(quad) for quad in draw(st.lists(QUADS, max_size=2)) if quad not in drawn]
    return [*facts, *static]


def direct(pattern: TriplePattern, facts: list[Fact]) -> list[tuple[str, ...]]:
    """Return bindings, instants and graph of every matching labelled fact."""
    found = []
    for fact in facts:
        bound: dict[str, Term] = {}
        fits = all(
            bound.setdefault(wanted, term) == term if is_variable(wanted) else wanted == term
            for wanted, term in zip(pattern, fact.quad.triple, strict=True)
        )
        if fits and fact.label is not None:
            start = fact.label.start
            initial = instant_term(start) if start is not None else ""
            values = [bound[name] for name in sorted(bound)]
            found.append((*values, initial, instant_term(fact.label.end), fact.quad.graph))
    return sorted(found)


def asked(pattern: TriplePattern, rewriting: Rewriting, store: ox.Store) -> list[tuple[str, ...]]:
    """Return the same by rewritten patterns over annotated data in another engine."""
    first, *others = rewriting.patterns
    names = sorted({term for term in pattern if is_variable(term)})
    found = []
    for bound in match_patterns(store, [first]):
        if rewriting.derived is not None:
            matched = Quad(*(bound.get(term, Term(term)) for term in first))
            bound[rewriting.derived.variable] = rewriting.derived.of(matched)
        for solution in match_patterns(store, others, bound):
            if rewriting.link is not None:
                assert rewriting.graph is not None
                linked = match_patterns(store, [rewriting.link], solution)
                solution = linked[0] if linked else solution | {rewriting.graph: DEFAULT_GRAPH}
            initial = solution[rewriting.initial] if rewriting.initial else ""
            assert rewriting.graph is not None
            graph = solution[rewriting.graph]
            values = [solution[name] for name in names]
            found.append((*values, initial, solution[rewriting.final], graph))
    return sorted(found)


@every_labelling
@given(data=st.data())
def test_rewritten_patterns_find_the_labelled_facts(
    labelling: Labelling, data: st.DataObject
) -> None:
    facts = _one_label_at_a_time(data.draw(facts_labelled(labelling)))
    pattern = data.draw(PATTERNS)
    for method in METHODS:
        quads = [quad for fact in facts for quad in method.encode(fact, NAMING)]
        _check(method, pattern, labelling, quads, direct(pattern, facts))


@given(data=st.data())
def test_rewritten_patterns_find_instants(data: st.DataObject) -> None:
    facts = _one_label_at_a_time(
        fact if fact.label is None else fact._replace(label=at_instant(fact.label.end))
        for fact in data.draw(facts_labelled("expiration"))
    )
    pattern = data.draw(PATTERNS)
    # Both ends are said by one term.
    expected = sorted((*row[:-2], row[-3], row[-1]) for row in direct(pattern, facts))
    for method in METHODS:
        quads = points([quad for fact in facts for quad in method.encode(fact, NAMING)])
        _check(method, pattern, "instant", quads, expected)


@given(data=st.data())
def test_rewritten_patterns_find_older_intervals(data: st.DataObject) -> None:
    drawn = data.draw(facts_labelled("interval"))
    pattern = data.draw(PATTERNS)
    for method in METHODS:
        facts = drawn
        if method.name == "implicit-graph":
            # Its fragments have one interval each: more could not be told apart.
            facts = [fact for fact in facts if sum(fact.quad == each.quad for each in facts) == 1]
        facts = _one_label_at_a_time(facts)
        quads = older_intervals([quad for fact in facts for quad in method.encode(fact, NAMING)])
        assert len({quad.predicate for quad in quads} & {DEFAULT_VOCABULARY.interval}) == 0
        _check(method, pattern, "older interval", quads, direct(pattern, facts))


def _one_label_at_a_time(facts: Iterable[Fact]) -> list[Fact]:
    facts = list(facts)
    later = {fact for _, fact in overlaps(facts, "triple")}
    return [fact for fact in facts if fact not in later]


def _check(
    method: Method,
    pattern: TriplePattern,
    form: LabelForm,
    quads: Iterable[Quad],
    expected: list[tuple[str, ...]],
) -> None:
    """The rewritten pattern finds that in what a method wrote."""
    numbers = itertools.count()
    fresh = lambda hint: Variable(f"?_{hint}{next(numbers)}")  # noqa: E731
    rewriting = method.rewrite(pattern, RewriteOptions(form, fresh, NAMING))
    assert asked(pattern, rewriting, store_of(quads)) == expected, method.name
