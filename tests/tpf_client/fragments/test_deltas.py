"""Deltas from servers that cannot be trusted: the right text, or an error within bounds."""

from contextlib import closing, suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from annotations.clock import SystemClock
from annotations.labels import Expiration
from tests.support.loopback import Loopback
from tests.support.served import BASE, Served, quad
from tpf_client.errors import SourceError
from tpf_client.fragments.destinations import Destinations
from tpf_client.fragments.responses import Limits
from tpf_client.fragments.transport import DeltaError, Dictionaries, Transport

MAGIC = bytes.fromhex("5e2a4d1820000000")
TEXT = b"".join(b"<http://a/%d> <http://a/p> <http://a/o> .\n" % n for n in range(200))
NEXT = TEXT.replace(b"/7>", b"/8>")


def delta(dictionary: bytes, text: bytes, named: bytes | None = None) -> bytes:
    """A delta as a server makes it, which may name another dictionary."""
    prefix = zstd.ZstdDict(dictionary, is_raw=True).as_prefix
    options: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
    frame = zstd.compress(text, options=options, zstd_dict=prefix)
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
    with suppress(DeltaError):
        assert Dictionaries(10_000).read(bytes(body), TEXT) == NEXT


def test_only_announced_texts_are_kept_and_only_some_bytes_of_them() -> None:
    kept = Dictionaries(1000, capacity=100)
    kept.keep("a", {}, b"x")
    kept.keep("b", {"Use-As-Dictionary": 'match="?"'}, b"y" * 60)
    kept.keep("c", {"Use-As-Dictionary": 'match="?"'}, b"z" * 101)
    assert [kept.of(url) for url in "abc"] == [None, b"y" * 60, None]
    kept.keep("d", {"Use-As-Dictionary": 'match="?"'}, b"z" * 60)
    assert [kept.of(url) for url in "bd"] == [None, b"z" * 60]


HEADERS = {"Accept": "application/trig"}


def test_a_client_reads_live_pages_as_deltas(tmp_path: Path) -> None:
    url = BASE + "trains"
    with Served(tmp_path) as served:
        transport = Transport(served.clock, Limits(), Destinations([url]), session=served.session)
        for value in range(3):
            end = served.clock.now() + timedelta(seconds=60)
            served.publish(
                *[(quad(f"t{n}", "delay", f'"{value}"'), Expiration(end)) for n in range(30)]
            )
            page = transport.get(url, HEADERS)
            assert (page.headers.get("Content-Encoding") == "dcz") == (value > 0)
            whole = served.get("trains", "application/trig", Accept_Encoding="identity")
            assert page.body == whole.content
            assert (
                transport.get(url, {**HEADERS, "If-None-Match": page.headers["ETag"]}).status == 304
            )


@pytest.mark.parametrize("broken", [b"", b"junk", delta(NEXT, TEXT), delta(TEXT, b"\0" * 10**6)])
def test_a_delta_that_cannot_be_read_costs_one_more_request(broken: bytes) -> None:
    asked: list[str | None] = []

    def answer(environ: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        asked.append(environ.get("HTTP_AVAILABLE_DICTIONARY"))
        head = [("Content-Type", "application/n-quads"), ("Use-As-Dictionary", 'match="?"')]
        if asked[-1] is None:
            start("200 OK", head)
            return [TEXT]
        start("200 OK", [*head, ("Content-Encoding", "dcz")])
        return [broken]

    with closing(Loopback(answer)) as server:
        url = f"http://127.0.0.1:{server.port}/data"
        limits = Limits(max_page_bytes=100_000)
        transport = Transport(SystemClock(), limits, Destinations([url]))
        for _ in range(2):
            assert transport.get(url, HEADERS).body == TEXT
        assert [each is None for each in asked] == [True, False, True]


def test_a_page_that_has_not_changed_is_not_asked_for_again() -> None:
    """Some name the coding of what they do not send."""
    asked: list[str | None] = []

    def answer(environ: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        asked.append(environ.get("HTTP_AVAILABLE_DICTIONARY"))
        if asked[-1] is None:
            start("200 OK", [("Use-As-Dictionary", 'match="?"')])
            return [TEXT]
        start("304 Not Modified", [("Content-Encoding", "dcz")])
        return []

    with closing(Loopback(answer)) as server:
        url = f"http://127.0.0.1:{server.port}/data"
        transport = Transport(SystemClock(), Limits(), Destinations([url]))
        assert [transport.get(url, HEADERS).status for _ in range(2)] == [200, 304]
        assert len(asked) == 2


def test_a_delta_for_nobody_is_an_error() -> None:
    def answer(_: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        start("200 OK", [("Content-Encoding", "dcz")])
        return [delta(TEXT, NEXT)]

    with closing(Loopback(answer)) as server:
        url = f"http://127.0.0.1:{server.port}/data"
        transport = Transport(SystemClock(), Limits(retries=0), Destinations([url]))
        with pytest.raises(SourceError, match="no dictionary was named"):
            transport.get(url, HEADERS)
