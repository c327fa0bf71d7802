"""Hypothesis strategies for random timelines of publications.

A timeline has static facts, and dated batches of labelled facts. Facts appear, are renewed, change
value when or before they expire, and vanish; a predicate may have static and labelled facts. Terms
are few, so that facts join.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from hypothesis import strategies as st

from annotations.labels import (
    Expiration,
    Fact,
    FactKey,
    Interval,
    Label,
    Labelling,
    at_instant,
)
from annotations.namespaces import XSD_INTEGER
from annotations.terms import DEFAULT_GRAPH, Quad, Term, iri, literal
from tests.support.oracle import Publications

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
EX = "http://example.org/"

SUBJECTS = [iri(f"{EX}s{number}") for number in range(4)]
STATIC_PREDICATES = [iri(f"{EX}static{number}") for number in range(2)]
DYNAMIC_PREDICATES = [iri(f"{EX}dynamic{number}") for number in range(2)]
MIXED_PREDICATES = [iri(f"{EX}mixed")]
GRAPHS = [iri(f"{EX}g{number}") for number in range(2)]
VALUES: list[Term] = [
    *(literal(str(number), datatype=XSD_INTEGER) for number in (0, 1, 2, 10)),
    literal("a"),
    literal("b", language="en"),
    *SUBJECTS[:3],
]

TimelineLabelling: TypeAlias = Labelling | Literal["mixed", "instant"]


@dataclass(frozen=True, slots=True)
class Universe:
    """The few terms of a timeline.

    Args:
        subjects: of all facts.
        static: predicates of static facts.
        live: predicates of labelled facts; both lists may share some.
        values: objects.
        graphs: of static facts.
        live_graphs: of labelled facts.
    """

    subjects: Sequence[Term]
    static: Sequence[Term]
    live: Sequence[Term]
    values: Sequence[Term]
    graphs: Sequence[Term] = (DEFAULT_GRAPH,)
    live_graphs: Sequence[Term] = (DEFAULT_GRAPH,)


ONE_GRAPH = Universe(
    SUBJECTS,
    STATIC_PREDICATES + MIXED_PREDICATES,
    DYNAMIC_PREDICATES + MIXED_PREDICATES,
    VALUES,
)


class Batch(NamedTuple):
    """Facts that are published together, and when."""

    at: datetime
    facts: list[Fact]


@dataclass(frozen=True, slots=True)
class Timeline:
    """All publications in the order of time."""

    static: list[Quad]
    batches: list[Batch]
    key: FactKey = "subject-predicate"

    def publications(self, until: datetime | None = None) -> Publications:
        """Return the model after all publications, or those up to an instant (inclusive)."""
        model = Publications(self.static, self.key)
        for at, facts in self.batches:
            if until is None or at <= until:
                model.publish(facts, at)
        return model

    def instants(self) -> list[datetime]:
        """Return every instant of a publication, or at which a label starts or ends."""
        found = {START}
        for at, facts in self.batches:
            found.add(at)
            for fact in facts:
                assert fact.label is not None
                found |= {fact.label.end, fact.label.start or at}
        return sorted(instant for instant in found if instant >= START)


@st.composite
def timelines(
    draw: st.DrawFn,
    labelling: TimelineLabelling = "expiration",
    *,
    max_batches: int = 8,
    universe: Universe = ONE_GRAPH,
    unit: timedelta = timedelta(seconds=1),
) -> Timeline:
    """Return timelines that a server accepts.

    Args:
        draw: given by hypothesis.
        labelling: the kind of labels; ``mixed``: both, even for one fact.
        max_batches: most publications.
        universe: their terms.
        unit: every instant is a whole number of these after `START`.
    """
    static = draw(
        st.lists(
            st.builds(
                Quad,
                st.sampled_from(universe.subjects),
                st.sampled_from(universe.static),
                st.sampled_from(universe.values),
                st.sampled_from(universe.graphs),
            ),
            unique=True,
            max_size=8,
        )
    )
    # Few keys and many events per key: renewals and changes are what matters.
    keys = draw(
        st.lists(
            st.tuples(
                st.sampled_from(universe.subjects),
                st.sampled_from(universe.live),
                st.sampled_from(universe.live_graphs),
            ),
            unique=True,
            min_size=1,
            max_size=5,
        )
    )
    # A fact that is static as well could not be told from the labelled one.
    taken = set(static)
    model = Publications(static)
    batches = []
    now = START
    for _ in range(draw(st.integers(0, max_batches))):
        now += draw(st.integers(0, 4)) * unit
        batch: list[Fact] = []
        for subject, predicate, where in draw(st.lists(st.sampled_from(keys), max_size=3)):
            quad = Quad(subject, predicate, draw(st.sampled_from(universe.values)), where)
            fact = Fact(quad, draw(labels(labelling, now, unit)))
            if quad not in taken and model.accepts([*batch, fact], now):
                batch.append(fact)
        if batch:
            model.publish(batch, now)
            batches.append(Batch(now, batch))
    return Timeline(static, batches)


def labels(
    labelling: TimelineLabelling, now: datetime, unit: timedelta
) -> st.SearchStrategy[Label]:
    """Labels that have not ended: most start now, some in the past or the future."""
    length = st.integers(1, 6)
    expirations: st.SearchStrategy[Label] = st.builds(
        lambda units: Expiration(now + units * unit), length
    )
    intervals: st.SearchStrategy[Label] = st.builds(
        lambda shift, units: Interval(now + shift * unit, now + (max(shift, 0) + units) * unit),
        st.sampled_from([0, 0, 0, -1, 1, 3]),
        length,
    )
    if labelling == "instant":
        shifts = st.sampled_from([0, 0, 1, 3])
        return st.builds(lambda shift: at_instant(now + shift * unit), shifts)
    if labelling == "mixed":
        return st.one_of(expirations, intervals)
    return expirations if labelling == "expiration" else intervals
