"""Server-sent events: read however they are cut."""

import random
from itertools import chain, pairwise

import pytest

from annotations.event_reader import EventReader, ServerEvent, event_headers

TEXT = (
    ": hello\n\nid: 1\ndata: one\n\n"
    "event:tick\r\nid:2\r\ndata:two\r\ndata: lines\r\n\r\n"
    "data\n\nevent: empty\nid: 3\n\nretry: 1500\nretry: x\nid: a\0b\ndata: é\n\ndata: cut off"
)
EVENTS = [
    ServerEvent("message", "1", "one"),
    ServerEvent("tick", "2", "two\nlines"),
    ServerEvent("message", None, ""),
    ServerEvent("message", None, "é"),
]


def test_events_however_they_are_cut() -> None:
    for mark in (b"", b"\xef\xbb\xbf"):
        content = mark + TEXT.encode()
        for seed in range(200):
            choose = random.Random(seed)
            cuts = sorted(choose.choices(range(len(content) + 1), k=choose.randrange(9)))
            edges = [0, *cuts, len(content)]
            reader = EventReader(2**20)
            found = [
                event for start, end in pairwise(edges) for event in reader.feed(content[start:end])
            ]
            assert found == EVENTS, seed
            assert reader.retry == 1.5


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_every_end_of_a_line_ends_it_also_byte_by_byte(end: str) -> None:
    text = end.join(["id: 1", "data: one", "data: two", "", ": more"])
    for content in (text.encode(), "\ufeff".encode() + text.encode()):
        reader = EventReader(100)
        found = [event for byte in content for event in reader.feed(bytes([byte]))]
        assert found == [ServerEvent("message", "1", "one\ntwo")]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_event_has_bounds(size: int) -> None:
    for content in (b"data: " + b"x" * 99, b"data: x\n" * 99):
        reader = EventReader(50)
        pieces = [content[start : start + size] for start in range(0, len(content), size)]
        with pytest.raises(ValueError, match="more than 50 characters"):
            list(chain.from_iterable(map(reader.feed, pieces)))


@pytest.mark.parametrize(("last", "sent"), [(" 7", b"7"), ("é\u20ac\U0001f600", "é€😀".encode())])
def test_an_identifier_of_any_script_is_sent_again(last: str, sent: bytes) -> None:
    assert event_headers(last)["Last-Event-ID"].encode("latin-1") == sent
    assert "Last-Event-ID" not in event_headers(None)
