"""What has passed of a stream."""

from tpf_server.continuous.runtime.clock import StreamClock


def test_a_stream_is_complete_up_to_its_newest_element_or_what_was_told_last() -> None:
    clock = StreamClock()
    clock.newest = clock.latest = 5
    latest = []
    for told in (9, 7, 3):
        clock.tell(told, 9)
        latest.append(clock.latest)
    # A clock that is set back makes elements that come then no late ones.
    assert latest == [9, 7, 5]
