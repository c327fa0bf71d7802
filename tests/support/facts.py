"""Hypothesis strategies for arbitrary terms, labels and facts."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, Interval, Label
from annotations.methods.base import Naming
from annotations.namespaces import DEFAULT_VOCABULARY
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    Term,
    Triple,
    blank_node,
    iri,
    literal,
    triple_term,
)

NAMING = Naming("http://example.org/trains/facts/", "http://example.org/trains")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text(
    '"\\\n\r\t\b\f\x00\x7f\ufffeab', max_size=12
)
IRI_TAIL = st.text(
    st.characters(
        exclude_categories=["Cs", "Cc", "Z"],
        exclude_characters='<>"{}|^`\\[]#%',
        max_codepoint=0x2FFF,
    ),
    max_size=8,
)

IRIS: st.SearchStrategy[Term] = st.one_of(
    st.sampled_from([iri(f"http://example.org/{name}") for name in "abcdef"]),
    st.builds(lambda tail: iri("http://example.org/" + tail), IRI_TAIL),
)
BLANKS: st.SearchStrategy[Term] = st.sampled_from([blank_node("b0"), blank_node("x.y")])
LITERALS: st.SearchStrategy[Term] = st.one_of(
    st.builds(literal, TEXT),
    st.builds(
        lambda text, tag: literal(text, language=tag), TEXT, st.sampled_from(["en", "de-AT"])
    ),
    st.builds(
        lambda text, kind: literal(text, datatype=kind),
        TEXT,
        st.sampled_from(
            ["http://www.w3.org/2001/XMLSchema#integer", "http://example.org/datatype#d"]
        ),
    ),
)
SUBJECTS = st.one_of(IRIS, BLANKS)
OBJECTS = st.one_of(IRIS, BLANKS, LITERALS)
OBJECTS_12 = st.one_of(
    OBJECTS, st.builds(lambda s, p, o: triple_term(Triple(s, p, o)), SUBJECTS, IRIS, OBJECTS)
)
GRAPHS = st.one_of(st.just(DEFAULT_GRAPH), IRIS)


def _naive_years(first: int, last: int) -> tuple[datetime, datetime]:
    """Return bounds without a zone, as hypothesis requires."""
    lower, upper = datetime(first, 1, 2, tzinfo=UTC), datetime(last, 12, 30, tzinfo=UTC)
    return lower.replace(tzinfo=None), upper.replace(tzinfo=None)


INSTANTS = st.datetimes(*_naive_years(1, 9999), timezones=st.just(UTC))
LABELS: st.SearchStrategy[Label] = st.one_of(
    st.builds(Expiration, INSTANTS),
    st.builds(
        lambda start, length: Interval(start, start + timedelta(microseconds=length)),
        st.datetimes(*_naive_years(1, 9000), timezones=st.just(UTC)),
        st.integers(1, 10**15),
    ),
)
FACTS: st.SearchStrategy[Fact] = st.builds(
    Fact, st.builds(Quad, SUBJECTS, IRIS, OBJECTS_12, GRAPHS), st.one_of(st.none(), LABELS)
)


def points(quads: list[Quad]) -> list[Quad]:
    """Replace intervals of a microsecond by instants."""
    names = DEFAULT_VOCABULARY
    starts = {quad.subject: quad.object for quad in quads if quad.predicate == names.initial}
    return [
        quad._replace(predicate=names.instant, object=starts[quad.object])
        if quad.predicate == names.interval
        else quad
        for quad in quads
        if quad.subject not in starts
    ]


def older_intervals(quads: list[Quad]) -> list[Quad]:
    """Put intervals directly on the labelled node, as in older data."""
    names = DEFAULT_VOCABULARY
    bounds = {
        (quad.subject, quad.predicate): quad.object
        for quad in quads
        if quad.predicate in (names.initial, names.final)
    }
    result = []
    for quad in quads:
        if quad.predicate == names.interval:
            for new, old in (
                (names.interval_initial, names.initial), (names.interval_final, names.final),
            ):  # fmt: skip
                result.append(quad._replace(predicate=new, object=bounds[quad.object, old]))
        elif (quad.subject, quad.predicate) not in bounds:
            result.append(quad)
    return result
