"""What has passed of streams, against a table of instants; the order of late elements."""

from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term
from tests.support.csparql_reference import Clocks
from tpf_server.continuous.runtime.clock import (
    ENDLESS,
    NEVER,
    ReorderBuffer,
    StreamClock,
    StreamClocks,
    Waits,
)

INSTANTS = st.integers(0, 20)
STREAMS = ("<urn:a>", "<urn:b>", "<urn:c>")


@given(
    st.lists(st.tuples(st.sampled_from(STREAMS), INSTANTS), max_size=8),
    st.sets(st.sampled_from(STREAMS), min_size=1),
    st.builds(Waits, st.integers(0, 5), st.integers(0, 9)),
    st.none() | INSTANTS,
    st.none() | INSTANTS,
)
def test_an_instant_has_passed_for_readers_of_streams(elements, read, waits, told, present):
    streams: dict[Term, StreamClock] = {}
    clocks = StreamClocks(streams, waits)
    table = Clocks(waits.lateness, waits.patience, present, told=-1 if told is None else told)
    clocks.told = NEVER if told is None else told
    clocks.present = ENDLESS if present is None else present
    for name, at in elements:
        streams.setdefault(Term(name), StreamClock()).came(at)
        table.newest[name] = max(at, table.newest.get(name, at))
    names = [Term(each) for each in read]
    passed = clocks.passed(names, names)
    for instant in range(21):
        assert (instant <= passed) == table.passed(read, instant)


def test_a_stream_is_complete_up_to_its_newest_element_or_what_was_told_last() -> None:
    clock = StreamClock()
    clock.newest = clock.latest = 5
    latest = []
    for told in (9, 7, 3):
        clock.tell(told, 9)
        latest.append(clock.latest)
    # A clock that is set back makes elements that come then no late ones.
    assert latest == [9, 7, 5]


@given(st.lists(st.tuples(st.sampled_from(STREAMS), INSTANTS), max_size=20), st.integers(0, 25))
def test_what_comes_out_of_order_leaves_in_order(elements, lateness):
    buffer: ReorderBuffer[int] = ReorderBuffer(lateness)
    left: list[tuple[int, int]] = []
    for number, (stream, at) in enumerate(elements):
        left += buffer.add(stream, at, number)
    left += buffer.rest()
    assert sorted(number for _, number in left) == list(range(len(elements)))
    if lateness >= 20:
        # Then none is too late.
        assert left == sorted((at, number) for number, (_, at) in enumerate(elements))
