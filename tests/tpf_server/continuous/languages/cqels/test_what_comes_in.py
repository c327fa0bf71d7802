"""Valid and refused elements: terms, values of records, timestamps."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import literal
from tests.support.examples import examples
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.elements.elements import canonical_term
from tpf_server.continuous.runtime.errors import ContinuousError, ElementError, TimestampError
from tpf_server.continuous.runtime.semantics import SEMANTICS
from tpf_server.store.static.ox_terms import ox_term, text_of

XSD = "http://www.w3.org/2001/XMLSchema#"
GOOD = ("<urn:s>", "<urn:p>", '"o"')
NO_SUBJECTS = ("<<( <urn:a> <urn:b> <urn:c> )>>", "<urn:a b>", "<urn:{a}>", "<a>", "<urn:\udfff>")
NO_OBJECTS = (
    *('"unclosed', '"in"side"', '"x"^^<a b>', '"x"@', '"lone \ud800"', "_:", "o", "", None, 7),
)
WRONG = [
    ('"literal"', "<urn:p>", "<urn:o>"),
    ("<urn:s>", '"literal"', "<urn:o>"),
    ("<urn:s>", "_:b", "<urn:o>"),
    ("<urn:s>", "<urn:p", "<urn:o>"),
    ("<urn:s>", "<urn:p>"),
    ("<urn:s>", "<urn:p>", "<urn:o>", "<urn:g>"),
    *((each, "<urn:p>", "<urn:o>") for each in NO_SUBJECTS),
    *(("<urn:s>", "<urn:p>", each) for each in NO_OBJECTS),
]


def engines():
    cqels, periodic = Engine(), Engine()
    cqels.register("SELECT * { STREAM <urn:s> [ALL] { ?s ?p ?o } }")
    periodic.register_csparql("SELECT * FROM STREAM <urn:s> [RANGE 9s STEP 1s] { ?s ?p ?o }")
    return cqels, periodic


@pytest.mark.parametrize("engine", engines(), ids=lambda engine: type(engine).__name__)
@pytest.mark.parametrize("triple", WRONG, ids=ascii)
def test_what_is_no_triple_is_refused_with_the_element(engine, triple):
    # Also where each term is known, in another place.
    engine.push("urn:s", [("<urn:s>", "<urn:p>", '"literal"'), ("_:b", "<urn:p>", "<urn:o>")], 1)
    held = len(engine.dictionary)
    for element in (triple, [GOOD, triple]):
        with pytest.raises(ElementError) as refused:
            engine.push("urn:s", element, 1)
        assert repr(triple) in str(refused.value)
    assert len(engine.dictionary) <= held + len(GOOD)


@pytest.mark.parametrize("element", [7, [7], ["<urn:s>"], ["<urn:s>", ("<urn:p>",)], None])
def test_what_is_no_element_is_refused(element):
    for engine in engines():
        with pytest.raises(ElementError, match="triple"):
            engine.push("urn:s", element, 1)


def test_a_term_that_is_written_otherwise_is_the_same_term():
    engine = Engine()
    query = engine.register("SELECT ?s { STREAM <urn:s> [NOW] { ?s <urn:p> 'é' } }")
    for text in ('"é"', f'"é"^^<{XSD}string>', r'"\u00E9"'):
        engine.push("urn:s", ("<urn:s>", "<urn:p>", text), 1)
    assert len(list(query)) == 3


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.sampled_from(
        ["", "@en", "@en-GB", f"^^<{XSD}double>", f"^^<{XSD}string>", "^^<urn:x>",
         "^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#HTML>"]
    ),
)  # fmt: skip
def test_texts_become_canonical(text, kind):
    written = literal(text) + kind
    term = canonical_term(written)
    assert term == text_of(ox_term(term))
    assert canonical_term(term) == term


VALUES = [
    (True, f'"true"^^<{XSD}boolean>'),
    (False, f'"false"^^<{XSD}boolean>'),
    (np.bool_(True), f'"true"^^<{XSD}boolean>'),
    (7, f'"7"^^<{XSD}integer>'),
    (np.int64(7), f'"7"^^<{XSD}integer>'),
    (np.uint8(7), f'"7"^^<{XSD}integer>'),
    (10**30, f'"{10**30}"^^<{XSD}integer>'),
    (0.1, f'"0.1"^^<{XSD}double>'),
    (1 / 3, f'"0.3333333333333333"^^<{XSD}double>'),
    (np.float64(2.5), f'"2.5"^^<{XSD}double>'),
    (1e22, f'"1{22 * "0"}"^^<{XSD}double>'),
    (math.nan, f'"NaN"^^<{XSD}double>'),
    (-math.inf, f'"-INF"^^<{XSD}double>'),
    (Decimal("2.50"), f'"2.50"^^<{XSD}decimal>'),
    (datetime(2020, 1, 2, tzinfo=UTC), f'"2020-01-02T00:00:00Z"^^<{XSD}dateTime>'),
    ('"text"', '"text"'),
]
EAST, WEST = (timezone(timedelta(hours=hours)) for hours in (14, -12))
VALUELESS = [
    None, Decimal("NaN"), Decimal("Infinity"), datetime(2020, 1, 2), date(2020, 1, 2), b"x", [1],  # noqa: DTZ001
    np.datetime64("2020-01-02"), "text", '"open', "<a b>", '"\ud800"', Decimal("-NaN12"),
    datetime(1, 1, 1, tzinfo=EAST), datetime(9999, 12, 31, 12, 0, 0, 1, tzinfo=WEST),
]  # fmt: skip


def fed(way):
    engine = Engine()
    text = "SELECT ?s ?v ?w { STREAM <urn:s> [NOW] { ?s <urn:p> ?v ; <urn:q> ?w } }"
    query = engine.register(text)
    feed = engine.record_feed("urn:s", ["urn:p", "urn:q"], "urn:s/")
    if way == "counting":
        # Then records are made triples.
        engine.register("SELECT * { STREAM <urn:s> [TRIPLES 1] { ?s ?p ?o } }")
    return feed, query


@pytest.mark.parametrize("way", ["record", "counting"])
@pytest.mark.parametrize("first", [1, 1.5, "<urn:x>"], ids=repr)
@pytest.mark.parametrize(("value", "term"), VALUES, ids=repr)
def test_values_of_records(value, term, first, way):
    feed, query = fed(way)
    feed.push(1, (first, 0), 1)
    list(query)
    feed.push(1, (value, 0), np.int64(2))
    ((row,),) = [each.rows for each in query]
    assert row == ("<urn:s/1>", term, f'"0"^^<{XSD}integer>')


@pytest.mark.parametrize("way", ["record", "counting"])
@pytest.mark.parametrize("value", VALUELESS, ids=ascii)
def test_what_is_no_value_is_refused_and_nothing_arrives(value, way):
    feed, query = fed(way)
    feed.push(1, (1, 1), 1)
    list(query)
    for values in ((value, 1), (1, value)):
        with pytest.raises(ElementError):
            feed.push(1, values, 2)
    assert not list(query)


@pytest.mark.parametrize("subject", ['"x"', "x", True, 1.5, None, "<<( <a:a> <a:b> <a:c> )>>"])
def test_what_is_no_subject_is_refused(subject):
    feed, query = fed("record")
    with pytest.raises(ElementError, match=str(subject)[:2].replace("(", r"\(")):
        feed.push(subject, (1, 1), 2)
    assert not list(query)


@pytest.mark.parametrize("engine", engines(), ids=lambda engine: type(engine).__name__)
def test_integers_of_other_libraries_are_timestamps(engine):
    for number in (np.int64(5), np.uint32(6), 7):
        engine.push("urn:s", GOOD, number)
    engine.advance(np.int32(8))
    assert (engine.time, type(engine.time)) == (8, int)
    naive = datetime(2020, 1, 1)  # noqa: DTZ001 (that is what is wrong)
    for wrong in (True, np.bool_(True), 1.5, np.float64(2), "3", None, naive):
        with pytest.raises(TimestampError, match=r"not an instant|time zone"):
            engine.push("urn:s", GOOD, wrong)
    engine.advance(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert engine.time == 1_000


BAD = [
    (["<urn:r>", Decimal("NaN")], 0),
    (["<urn:r>", Decimal("-Infinity")], 0),
    ([None, 1], 0),
    (["a room", 1], 0),
    (["<urn:r>", "\ud800"], 0),
    (["<urn:r>"], 0),
    (["<urn:r>", object()], 0),
    (["<urn:r>", datetime(2026, 1, 1)], 0),  # noqa: DTZ001 (that is what is wrong)
    (["<urn:r>", 1], 253_402_300_800_000),
    (["<urn:r>", 1], None),
]
STARS = [
    "SELECT ?r ?n { STREAM <urn:s> [%s] { ?x <urn:in> ?r ; <urn:v> ?n } }",
    "SELECT ?r (SUM(?n) AS ?t) { STREAM <urn:s> [%s] { ?x <urn:in> ?r ; <urn:v> ?n } } GROUP BY ?r",
]


@examples(30)
@given(st.randoms(use_true_random=False), st.sampled_from([*SEMANTICS.values()]))
def test_what_is_refused_changes_nothing(random, policy):
    """As first record, after a registration, amid others."""
    engines = [Engine(EngineSettings(semantics=policy)) for _ in range(2)]
    feeds = [each.record_feed("urn:s", ["urn:in", "urn:v"]) for each in engines]
    queries = [[], []]
    at = 0
    for number in range(random.randint(2, 12)):
        # Values that nobody takes are not looked at.
        if not number or random.random() < 0.4:
            window = random.choice(["NOW", "RANGE 3ms", "RANGE 4ms SLIDE 2ms", "TRIPLES 3"])
            text = random.choice(STARS) % window
            for each, found in zip(engines, queries, strict=True):
                found.append(each.register(text))
        at += random.randint(0, 4)
        if random.random() < 0.5:
            values, when = random.choice(BAD)
            subject = random.choice(["<urn:x>", '"x"', "x", 7])
            with pytest.raises(ContinuousError):
                feeds[0].push(subject, values, at if when == 0 else when)
            with pytest.raises(ContinuousError):
                engines[0].push("urn:s", ("<urn:x>", "<urn:in>", "no term"), at)
        value = random.choice([1, Decimal("2.5"), '"many"'])
        for feed in feeds:
            feed.push("<urn:x>", ["<urn:r>", value], at)
    first, second = [[[*query] for query in found] for found in queries]
    assert first == second
    assert engines[0].time == engines[1].time


@pytest.mark.parametrize(
    ("at", "says"),
    [
        *((at, str(at)) for at in (-62_135_596_800_001, 253_402_300_800_000, 2**63, 2**70)),
        (datetime(1, 1, 1, tzinfo=EAST), "-62135647200000"),
        (datetime(9999, 12, 31, 12, tzinfo=WEST), "253402300800000"),
    ],
)
def test_instants_without_a_date_are_refused(at, says):
    engine = Engine()
    query = engine.register("SELECT ?o { STREAM <urn:s> [RANGE 1s] { ?x <urn:p> ?o } }")
    feed = engine.record_feed("urn:s", ["urn:p"])
    engine.push("urn:s", ("<urn:x>", "<urn:p>", "<urn:o>"), 1)
    for push in (
        lambda: engine.push("urn:s", ("<urn:x>", "<urn:p>", "<urn:o>"), at),
        lambda: feed.push("<urn:x>", ["<urn:o>"], at),
        lambda: engine.advance(at),
        lambda: Engine().push("urn:s", ("<urn:x>", "<urn:p>", "<urn:o>"), at),
    ):
        with pytest.raises(TimestampError, match=says):
            push()
    assert [batch.num_rows for batch in query.results(format="arrow")] == [1]


def test_what_cannot_be_written_as_columns_waits_on():
    engine = Engine()
    query = engine.register("SELECT ?o { STREAM <urn:s> [RANGE 1s] { ?x <urn:p> ?o } }")
    engine.push("urn:s", ("<urn:x>", "<urn:p>", "<urn:o>"), 1)
    query.waiting.append(query.waiting[0]._replace(at=2**70))
    with pytest.raises(OverflowError):
        list(query.results(format="arrow"))
    assert [each.at for each in query] == [1, 2**70]
