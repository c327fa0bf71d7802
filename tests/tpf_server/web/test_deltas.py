"""Deltas between pages (RFC 9842): whoever can read one gets the page that others get."""

import re
from base64 import b64encode
from datetime import timedelta
from hashlib import sha256

import pytest
import requests
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, Interval
from tests.support.examples import examples
from tests.support.served import NOON, Served, quad
from tests.tpf_server.conftest import STATIC
from tpf_server.web.page_bodies import dictionary_field

MAGIC = bytes.fromhex("5e2a4d1820000000")
DELTAS = {"Accept_Encoding": "gzip, dcz"}


def named(text: bytes) -> str:
    """The value of ``Available-Dictionary`` for a text."""
    return f":{b64encode(sha256(text).digest()).decode()}:"


def text_of(response: requests.Response, dictionaries: dict[bytes, bytes]) -> bytes:
    """The text of an answer, by the letter of the RFC; dictionaries by their SHA-256."""
    body = response.content  # gzip is unpacked already
    if response.headers.get("Content-Encoding") != "dcz":
        return body
    assert body[:8] == MAGIC
    prefix = zstd.ZstdDict(dictionaries[body[8:40]], is_raw=True).as_prefix
    return zstd.decompress(body[40:], zstd_dict=prefix)


def publish(served: Served, value: int, seconds: float = 600) -> None:
    """Publish delays of fifty trains, of which some are other ones than before."""
    end = served.clock.now() + timedelta(seconds=seconds)
    assert served.live is not None
    served.live.publish(
        [
            Fact(quad(f"t{n}", "delay", f'"{value if n % 10 == 0 else n}"'), Expiration(end))
            for n in range(50)
        ],
        served.clock.now(),
    )


def test_a_page_is_sent_as_what_differs_from_the_one_before(served: Served) -> None:
    publish(served, 1)
    first = served.get("trains", "application/trig", **DELTAS)
    assert first.headers["Use-As-Dictionary"] == 'match="?"'
    served.clock.advance_to(NOON + timedelta(seconds=5))
    publish(served, 2)
    whole = served.get("trains", "application/trig", Accept_Encoding="gzip")
    reply = served.get(
        "trains", "application/trig", Available_Dictionary=named(first.content), **DELTAS
    )
    assert reply.headers["Content-Encoding"] == "dcz"
    text = text_of(reply, {sha256(first.content).digest(): first.content})
    assert text == whole.content != first.content
    assert int(reply.headers["Content-Length"]) < 300 < int(whole.headers["Content-Length"])
    assert reply.headers["ETag"] != whole.headers["ETag"]
    for name in ("Link", "Last-Modified"):  # known from the page of before
        assert name in whole.headers
        assert name not in reply.headers
    assert reply.headers["Vary"] == whole.headers["Vary"]
    assert "Available-Dictionary" in reply.headers["Vary"]
    for tag in (reply.headers["ETag"], whole.headers["ETag"]):
        assert served.get("trains", "application/trig", If_None_Match=tag).status_code == 304


def head_bytes(response: requests.Response) -> int:
    """The bytes of a head as HTTP/1.1 sends it."""
    return 19 + sum(len(name) + len(value) + 4 for name, value in response.headers.items())


def test_a_head_repeats_little_that_the_client_knows(served: Served) -> None:
    """What a standards-conforming client or browser needs of each answer stays."""
    fragment = "trains?predicate=http%3A%2F%2Fexample.org%2Fdelay&graph=urn%3Aldf%3AdefaultGraph"
    publish(served, 1)
    first = served.get(fragment, "application/trig", **DELTAS)
    publish(served, 2)
    named_one = {"Available_Dictionary": named(first.content), **DELTAS}
    served.get(fragment, "application/trig", **named_one)
    served.clock.advance_to(NOON + timedelta(seconds=0.4))
    reply = served.get(fragment, "application/trig", **named_one)
    assert reply.headers["Content-Encoding"] == "dcz"
    assert head_bytes(reply) <= 415
    timed = served.get(fragment, "application/trig", Cache_Control="no-cache", **named_one)
    assert timed.headers["Server-Timing"] == "made;dur=400"
    assert timed.headers["Cache-Control"].startswith("private, ")
    unchanged = served.get(fragment, "application/trig", If_None_Match=reply.headers["ETag"])
    assert unchanged.status_code == 304
    assert head_bytes(unchanged) <= 350
    for name in ("Date", "Expires", "ETag", "Vary", "Access-Control-Allow-Origin"):
        assert name in reply.headers
        assert name in unchanged.headers
    assert first.headers["X-Content-Type-Options"] == "nosniff"
    assert first.headers["Link"].count("rel=") == 3
    assert first.headers["Access-Control-Expose-Headers"] == "*"


def test_a_browser_that_asks_each_time_may_keep_a_page_as_its_dictionary(served: Served) -> None:
    """Browsers accept deltas only when they have a dictionary, and keep it as long as the page."""
    publish(served, 1)
    asks = {"Accept_Encoding": "gzip, deflate, br, zstd", "Cache_Control": "max-age=0"}
    first = served.get("trains", "application/trig", **asks)
    assert first.headers["Use-As-Dictionary"] == 'match="?"'
    # Caches that others share must not show it for longer.
    control = first.headers["Cache-Control"]
    assert control == "private, max-age=10, stale-while-revalidate=60"
    tag = first.headers["ETag"]
    unchanged = served.get("trains", "application/trig", If_None_Match=tag, **asks)
    assert (unchanged.status_code, unchanged.headers["Cache-Control"]) == (304, control)
    publish(served, 2)
    asks["Accept_Encoding"] += ", dcb, dcz"
    asks["Available_Dictionary"] = named(first.content)
    reply = served.get("trains", "application/trig", **asks)
    assert reply.headers["Content-Encoding"] == "dcz"
    assert reply.headers["Cache-Control"] == control
    # Nobody else may, and nobody may show a page in HTML for longer.
    for more in ({"Cache_Control": "max-age=05"}, {"Cache_Control": "no-store"}, {}):
        usual = served.get("trains", "application/trig", Accept_Encoding="zstd", **more)
        assert usual.headers["Cache-Control"] == "public, max-age=10"
    shown = served.get("trains", "text/html", **asks)
    assert "Cache-Control" not in shown.headers
    assert shown.headers["Expires"] == "Tue, 08 Dec 2015 12:00:10 GMT"


UNREADABLE = [
    ("gzip", None), ("dcz;q=0, gzip", None), ("*", None), ("gzip, dcz", "of nobody"),
    ("dcz", ":no base64:"), ("gzip, dcz", ""), ("gzip, dcz", ":" + "A" * 43 + "=:"),
    ("gzip, dcz", "x" * 9000), ("gzip, dcz", ":" + "A" * 42 + "é=:"),
]  # fmt: skip


def test_nobody_gets_a_delta_that_he_cannot_read(served: Served) -> None:
    publish(served, 1)
    first = served.get("trains", "application/trig", **DELTAS)
    publish(served, 2)
    plain = served.get("trains", "application/trig", Accept_Encoding="identity")
    for encodings, dictionary in UNREADABLE:
        headers = {
            "Accept": "application/trig",
            "Accept-Encoding": encodings,
            "Available-Dictionary": named(first.content) if dictionary is None else dictionary,
        }
        encoded = {name: value.encode() for name, value in headers.items()}
        reply = served.request("GET", "trains", headers=encoded)
        assert reply.headers.get("Content-Encoding") != "dcz"
        assert reply.content == plain.content


def test_what_is_static_or_pinned_is_no_dictionary(served: Served) -> None:
    publish(served, 1)
    page = served.page("trains")
    pinned = page.objects("http://www.w3.org/ns/hydra/core#last")[0].split("/", 3)[3]
    for path in (pinned, "trains?subject=http://example.org/t1&predicate=http://example.org/none"):
        reply = served.get(path, "application/trig", **DELTAS)
        live = "Available-Dictionary" in reply.headers["Vary"]
        assert ("Use-As-Dictionary" in reply.headers) == (live and path is not pinned)


@pytest.mark.parametrize(
    ("query", "match"),
    [
        ("", "?"), ("predicate=http%3A%2F%2Fa&page=2", "?*A%2F%2Fa&page=2"),
        ("predicate=http://a/(b)*", r"?*//a/\\(b\\)\\*"), ('o="a\\"', r"?o=\"a\\\\" + r"\""),
        ("&".join(["p=" + "x" * 20] * 200), None), ("s=é", None), ("a?b+c", r"?a\\?b\\+c"),
    ],
)  # fmt: skip
def test_the_match_is_this_url_and_few_others(query: str, match: str | None) -> None:
    field = dictionary_field(f"http://server.test/trains?{query}")
    assert field == (None if match is None else ("Use-As-Dictionary", f'match="{match}"'))


PATHS = ("trains", "trains.nt?predicate=http://example.org/delay", "trains/named-graph.ttl")


@examples(7)
@given(data=st.data())
def test_deltas_are_the_pages_that_others_get(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts: dict[bytes, bytes] = {}
    with Served(tmp_path_factory.mktemp("s"), STATIC, settings={"page_size": 40}) as served:
        publish(served, 0)
        for step in range(data.draw(st.integers(3, 10))):
            seconds = data.draw(st.sampled_from((0.0, 0.1, 2.0, 700.0)))
            served.clock.advance_to(served.clock.now() + timedelta(seconds=seconds))
            if data.draw(st.booleans()):
                publish(served, step, data.draw(st.sampled_from((1.0, 600.0))))
            elif data.draw(st.booleans()) and served.live is not None:
                now = served.clock.now()
                begins = Interval(now + timedelta(seconds=1), now + timedelta(seconds=3))
                served.live.publish([Fact(quad(f"u{step}", "delay", '"0"'), begins)], now)
            path = data.draw(st.sampled_from(PATHS))
            headers = dict(DELTAS)
            if texts:
                chosen = data.draw(st.sampled_from(sorted(texts)))
                headers["Available_Dictionary"] = named(texts[chosen])
            reply = served.get(path, **headers)
            text = text_of(reply, texts)
            assert reply.status_code == 200
            tag, whole = reply.headers["ETag"], served.get(path, Accept_Encoding="identity")
            assert timeless(whole.content) == timeless(text)
            assert served.get(path, If_None_Match=tag).status_code == 304
            if "Use-As-Dictionary" in reply.headers:
                texts[sha256(text).digest()] = text


def timeless(text: bytes) -> bytes:
    """A page without the instant that it was made at."""
    return re.sub(rb"snapshot=[0-9.]+|evaluatedAt[^;]*?Z", b"", text)
