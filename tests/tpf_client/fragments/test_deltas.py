"""Deltas from servers that cannot be trusted: the right text, or an error within bounds."""

from hashlib import sha256

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from tpf_client.fragments.deltas import DeltaError, Dictionaries

MAGIC = bytes.fromhex("5e2a4d1820000000")
TEXT = b"".join(b"<http://a/%d> <http://a/p> <http://a/o> .\n" % n for n in range(200))
NEXT = TEXT.replace(b"/7>", b"/8>")


def delta(dictionary: bytes, text: bytes, named: bytes | None = None) -> bytes:
    """A delta as a server makes it, which may name another dictionary."""
    prefix = zstd.ZstdDict(dictionary, is_raw=True).as_prefix
    frame = zstd.compress(text, level=3, zstd_dict=prefix)
    return MAGIC + sha256(named or dictionary).digest() + frame


@given(dictionary=st.binary(min_size=8, max_size=300), text=st.binary(max_size=300))
def test_a_delta_gives_the_text(dictionary: bytes, text: bytes) -> None:
    assert Dictionaries(1000).read(delta(dictionary, text), dictionary) == text


def test_the_window_grows_with_the_dictionary() -> None:
    large = bytes(range(256)) * 40_000
    assert Dictionaries(2**24).read(delta(large, large + b"x"), large) == large + b"x"


@pytest.mark.parametrize(
    "body",
    [
        b"", MAGIC, delta(TEXT, NEXT)[:-5], delta(TEXT, NEXT) + b"more", delta(NEXT, TEXT),
        delta(NEXT, TEXT * 3, named=TEXT)[:40] + b"no frame", delta(TEXT, b"x" * 10_001),
        delta(TEXT, b"\0" * 10**8),
    ],
)  # fmt: skip
def test_what_is_no_delta_of_the_page_is_an_error(body: bytes) -> None:
    with pytest.raises(DeltaError):
        Dictionaries(10_000).read(body, TEXT)


@given(data=st.data())
def test_damaged_deltas_never_crash(data: st.DataObject) -> None:
    body = bytearray(delta(TEXT, NEXT))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(Dictionaries(10_000).read(bytes(body), TEXT)) <= 10_000
    except DeltaError:
        pass


def test_only_announced_texts_are_kept_and_only_some_bytes_of_them() -> None:
    kept = Dictionaries(1000, capacity=100)
    kept.keep("a", {}, b"x")
    kept.keep("b", {"Use-As-Dictionary": 'match="?"'}, b"y" * 60)
    kept.keep("c", {"Use-As-Dictionary": 'match="?"'}, b"z" * 101)
    assert [kept.of(url) for url in "abc"] == [None, b"y" * 60, None]
    kept.keep("d", {"Use-As-Dictionary": 'match="?"'}, b"z" * 60)
    assert [kept.of(url) for url in "bd"] == [None, b"z" * 60]
