"""Batches of records equal single records, or are refused whole."""

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.any_language import register
from tests.support.examples import examples
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.elements.elements import EPOCH
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.continuous.runtime.records.record_columns import encoded_column
from tpf_server.continuous.runtime.records.record_reading import term_text
from tpf_server.continuous.runtime.semantics import PAPER, PAPER_DSTREAM

NAMES = ["urn:x", "urn:k", "urn:n", "urn:t"]
TYPES = [pa.decimal128(30, 2), pa.string(), pa.int64(), pa.timestamp("us", "UTC")]
STAR = (
    "SELECT ?s ?x ?k ?n ?t { STREAM <urn:s> [RANGE 5ms]"
    " { ?s <urn:x> ?x ; <urn:k> ?k ; <urn:n> ?n ; <urn:t> ?t } }"
)
GROUP = (
    "SELECT ?k (SUM(?x) AS ?n) { STREAM <urn:s> [RANGE 9ms] { ?s <urn:x> ?x ; <urn:k> ?k } }"
    " GROUP BY ?k"
)
PART = "SELECT ?s ?k { STREAM <urn:s> [RANGE 5ms] { ?s <urn:k> ?k } }"
LAST = "SELECT ?s ?n { STREAM <urn:s> [TRIPLES 3] { ?s <urn:n> ?n } }"

SECONDS = int(timedelta(days=365 * 9000).total_seconds())
instants = (st.integers(0, SECONDS) | st.integers(0, 3) | st.floats(0, 100)).map(
    lambda seconds: datetime(2, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)
records = st.tuples(
    st.integers(0, 3),
    st.tuples(
        st.decimals(-(10**27), 10**27, places=2) | st.decimals(-9, 9, places=2),
        st.sampled_from(
            ['"a"', '"b"@en', "<urn:c>", '"1"^^<http://www.w3.org/2001/XMLSchema#int>']
        ),
        st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5),
        instants,
    ),
    st.integers(-1, 4),
)


def positive(value):
    """Arrow has no negative nought."""
    return value or value.copy_abs()


def batch(columns, types=TYPES):
    arrays = [pa.array(list(column), type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=NAMES[: len(arrays)])


def emissions(engine, queries):
    return [
        [(each.sequence, each.at, Counter(each.rows)) for each in engine.queries[name]]
        for name in queries
    ]


@pytest.mark.parametrize("queries", [(STAR, GROUP), (STAR, PART), (GROUP, LAST), ()])
@pytest.mark.parametrize("lateness", [0, 3])
@examples(6)
@given(some=st.lists(records, max_size=12), size=st.integers(1, 12))
def test_a_batch_is_its_records(some, size, queries, lateness):
    found = []
    at = 0
    times = [at := at + gap for _, _, gap in some]
    some = [(each[0], (positive(each[1][0]), *each[1][1:])) for each in some]
    for batched in (False, True):
        engine = Engine(EngineSettings(semantics=PAPER, lateness=lateness))
        names = [engine.register(text).name for text in queries]
        feed = engine.record_feed("urn:s", NAMES, "urn:r/")
        if batched:
            for first in range(0, len(some), size):
                part = some[first : first + size]
                numbers = pa.array([number for number, _ in part])
                columns = zip(*[values for _, values in part], strict=True)
                feed.push_batch(numbers, batch(columns), pa.array(times[first : first + size]))
        else:
            for (number, values), when in zip(some, times, strict=True):
                feed.push(number, values, when)
        engine.finish()
        found.append((emissions(engine, names), engine.arrivals, engine.dropped, engine.time))
    assert found[0] == found[1]


def test_subjects_and_timestamps_in_other_forms():
    engine = Engine()
    query = engine.register("SELECT ?s ?x { STREAM <urn:s> [NOW] { ?s <urn:x> ?x ; <urn:k> ?k } }")
    feed = engine.record_feed("urn:s", NAMES[:2])
    whole = batch([[Decimal("1.50"), Decimal("2.00")], ["<urn:a>", "<urn:b>"]], TYPES[:2])
    later = pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("ns", "Europe/Brussels"))
    feed.push_batch(pa.array(["<urn:1>"]), whole.slice(0, 1), later[:1])
    feed.push_batch(pa.array(["<urn:1>", "_:b"])[1:], whole.slice(1), later[1:])
    assert [row for each in query for row in each.rows] == [
        ("<urn:1>", '"1.50"^^<http://www.w3.org/2001/XMLSchema#decimal>'),
        ("_:b", '"2.00"^^<http://www.w3.org/2001/XMLSchema#decimal>'),
    ]
    assert engine.time == int(datetime(2020, 1, 1, tzinfo=UTC).timestamp() * 1000)


_RECORDS = "{ ?s <urn:x> ?x ; <urn:k> ?k }"
_RANKED = (
    f"SELECT ?k (COUNT(*) AS ?n) {{ STREAM <urn:s> [RANGE 5ms] {_RECORDS} }}"
    " GROUP BY ?k ORDER BY DESC(?n) DESC(?k) LIMIT 2"
)


@pytest.mark.parametrize(
    ("first", "policy", "second"),
    [
        (STAR, PAPER, PART),
        (STAR, PAPER_DSTREAM, PART),
        (STAR, PAPER, f"SELECT ?s FROM STREAM <urn:s> [RANGE 5ms STEP 1ms] {_RECORDS}"),
        (_RANKED, PAPER, f"SELECT ?s FROM STREAM <urn:s> [RANGE 5ms STEP 1ms] {_RECORDS}"),
    ],
)
def test_what_a_callback_registers_sees_the_rest_of_a_batch(first, policy, second):
    """Also where the callback is called between two records."""
    found = []
    for way in ("batch", "records", "elements"):
        engine, new = Engine(), []

        def take(_, engine=engine, new=new):
            if not new:
                new.append(register(engine, second))

        engine.register(first, take, semantics=policy)
        feed = engine.record_feed("urn:s", NAMES, "urn:r/")
        values: list[Any] = [[Decimal("1.00"), f'"{n}"', n, EPOCH] for n in range(4)]
        if way == "batch":
            columns = batch(zip(*values, strict=True))
            feed.push_batch(pa.array(range(4)), columns, pa.array([0, 10, 10, 11]))
        for number, (row, at) in enumerate(zip(values, [0, 10, 10, 11], strict=True)):
            if way == "records":
                feed.push(number, row, at)
            elif way == "elements":
                terms = zip(NAMES, map(term_text, row), strict=True)
                engine.push("urn:s", [(f"<urn:r/{number}>", f"<{p}>", o) for p, o in terms], at)
        engine.advance(20)
        found.append([(each.at, Counter(each.rows)) for each in new[0]])
    assert found[0] == found[1] == found[2]
    assert sum(map(len, (rows for _, rows in found[0]))) > 1


@pytest.mark.parametrize(
    ("subjects", "columns", "types", "times", "message"),
    [
        ([1], [[Decimal(1)]], TYPES[:1], [1], "1 values for 2 predicates"),
        ([1, 2], [[Decimal(1)], ['"a"']], TYPES[:2], [1], "2 subjects, 1 rows of values and 1 tim"),
        ([1], [[None], ['"a"']], TYPES[:2], [1], "record 1: no value for urn:x"),
        ([1], [[Decimal(1)], ["bare"]], TYPES[:2], [1], "record 1: urn:k: not a term: 'bare'"),
        ([1], [[b"b"], ['"a"']], [pa.binary(), pa.string()], [1], "urn:x: a column of binary has"),
        ([1], [[Decimal(1)], ['"a"']], TYPES[:2], [None], "record 1: no timestamp"),
        ([1], [[Decimal(1)], ['"a"']], TYPES[:2], ["1"], "timestamps cannot be a column of strin"),
        ([None], [[Decimal(1)], ['"a"']], TYPES[:2], [1], "record 1: no value for the subject"),
        (["x"], [[Decimal(1)], ['"a"']], TYPES[:2], [1], "record 1: the subject: not a term: 'x'"),
    ],
)
def test_what_is_refused_is_refused_whole(subjects, columns, types, times, message):
    engine = Engine()
    engine.register("SELECT ?x { STREAM <urn:s> [NOW] { ?s <urn:x> ?x ; <urn:k> ?k } }")
    feed = engine.record_feed("urn:s", NAMES[:2], "urn:r/")
    with pytest.raises(ElementError) as refused:
        feed.push_batch(pa.array(subjects), batch(columns, types), pa.array(times))
    assert str(refused.value).startswith(message)
    assert engine.arrivals == 0
    with pytest.raises(ElementError, match="1 values for 2 predicates"):
        feed.push(1, (1,), 1)


def test_columns_that_fit_are_not_taken_value_by_value():
    def never(value):
        raise AssertionError(value)

    engine = Engine()
    asked = []

    def term(text):
        asked.append(text)
        return engine.encode(text)

    many = 1000
    for array in (
        pa.array(np.arange(many)),
        pa.array(np.arange(many), pa.int16()),
        pa.array([Decimal(n).scaleb(-3) for n in range(-many, 0)], pa.decimal128(12, 3)),
        pa.array([datetime(1999, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(many)]),
        pa.array(['"a"', '"b"'] * (many // 2)),
    ):
        found = encoded_column("it", array, never, term)
        slow = [engine.record_feed("urn:s", []).value(each) for each in array.to_pylist()]
        assert found == slow
    assert asked == ['"a"', '"b"']


def test_terms_that_are_known_are_not_looked_at_again():
    engine = Engine()
    query = engine.register(
        "SELECT ?k { STREAM <urn:s> [RANGE 9s] { ?s <urn:k> ?k ; <urn:x> ?x } }"
    )
    feed = engine.record_feed("urn:s", NAMES[:2], "urn:r/")
    looked = []
    encode = feed._encode
    feed._encode = lambda term: looked.append(term) or encode(term)
    for at, more in enumerate((['"a"', '"b"'], ['"b"', '"c"'], ['"a"', '"c"'])):
        feed.push_batch(
            pa.array([2 * at, 2 * at + 1]),
            batch([[Decimal(1)] * 2, more], TYPES[:2]),
            pa.array([at] * 2),
        )
    assert looked == ['"a"', '"b"', '"c"']
    assert [row[0] for each in query for row in each.rows] == [
        '"a"',
        '"b"',
        '"b"',
        '"c"',
        '"a"',
        '"c"',
    ]


def test_instants_finer_than_a_microsecond_are_refused():
    fine = pa.array([1], pa.timestamp("ns", "UTC"))
    with pytest.raises(ElementError, match="microseconds"):
        encoded_column("it", fine, Engine().encode, Engine().encode)
    east = datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert encoded_column(
        "it", pa.array([east]), Engine().record_feed("urn:s", []).value, Engine().encode
    )
