from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
import requests
import responses
from requests.exceptions import ChunkedEncodingError, ContentDecodingError

from annotations.clock import ManualClock
from annotations.labels import Expiration
from annotations.terms import Quad, Term
from loaders.errors import PublishRefusedError, ServerUnreachableError, SettingError
from loaders.publisher import Publisher, is_stream
from tpf_client import publish as python_publish
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.spark.server_stream import ServerStream

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LABEL = Expiration(NOON + timedelta(hours=1))
QUADS = (
    Quad(Term("<http://e/s>"), Term("<http://e/p>"), Term('"1"')),
    Quad(Term("<http://e/s>"), Term("<http://e/p>"), Term('"2"'), Term("<http://e/g>")),
)
URL = "http://h.example/trains"


def publish(clock: ManualClock, url: str = URL) -> int:
    return Publisher(url, clock).publish(QUADS, LABEL, "b")


@responses.activate
def test_a_netrc_takes_the_place_of_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine h.example login user password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    responses.post(f"{URL}/facts", json={"sequence": 1, "repeated": False})
    Publisher(URL, ManualClock(NOON), "t").publish(QUADS, LABEL, "b")
    python_publish(URL, "<urn:s> <urn:p> <urn:o> .", expires_in=1, token="t")
    answer = PeriodicAnswer("q", 1, "CONSTRUCT", (), ((Term("<urn:a>"),) * 3,))
    ServerStream(f"{URL}/facts", "t").write("b", [answer])
    assert [each.request.headers["Authorization"] for each in responses.calls] == ["Bearer t"] * 3


@responses.activate
@pytest.mark.parametrize("error", [ChunkedEncodingError, ContentDecodingError])
def test_an_acknowledgement_that_breaks_off(error: type[requests.RequestException]) -> None:
    responses.post(f"{URL}/facts", body=error("cut"))
    responses.post(f"{URL}/facts", status=201)
    assert publish(ManualClock(NOON)) == 2
    sent = [call.request.body for call in responses.calls]
    lines = b'<http://e/s> <http://e/p> "1" .\n<http://e/s> <http://e/p> "2" <http://e/g> .\n'
    assert sent == [lines, lines]


@responses.activate
def test_ten_attempts_in_all_with_pauses_that_grow() -> None:
    clock, instants = ManualClock(NOON), list[datetime]()

    def cut(_request: object) -> tuple[int, dict[str, str], str]:
        instants.append(clock.now())
        raise ChunkedEncodingError("cut")

    responses.add_callback("POST", f"{URL}/facts", cut)
    with pytest.raises(ServerUnreachableError, match=r"in 10 attempts: an answer that is cut"):
        publish(clock)
    pauses = [(b - a).total_seconds() for a, b in pairwise(instants)]
    assert all(0.8 <= pause / (0.1 * 2**n) <= 1 for n, pause in enumerate(pauses[:5]))
    assert len(pauses) == 9


@responses.activate
@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("99999999999999999999", 300, 300),
        ("9" * 5000, 300, 300),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300, 300),
        ("7", 7, 7),
        ("Thu, 01 Jan 2026 12:00:20 GMT", 20, 20),
        ("\u00b2", 0, 0.5),
        ("-5", 0, 0.5),
        ("", 0, 0.5),
        ("Mon, 01 Jan 0001 00:00:00 +2359", 0, 0.5),
        ("Fri, 01 Jan 99999 00:00:00 GMT", 0, 0.5),
        ("Fri, 01 Jan 2027 00:00:00 +99999999999999999999", 0, 0.5),
    ],
)
def test_whatever_is_said_of_when_to_try_again(value: str, least: float, most: float) -> None:
    responses.post(f"{URL}/facts", status=503, headers={"Retry-After": value})
    responses.post(f"{URL}/facts", status=201)
    clock = ManualClock(NOON)
    assert publish(clock) == 2
    assert least <= (clock.now() - NOON).total_seconds() <= most


@responses.activate
@pytest.mark.parametrize("status", [300, 301, 304])
@pytest.mark.parametrize("headers", [{}, {"Location": "http://i.example/"}])
def test_what_is_elsewhere_is_not_acknowledged(status: int, headers: dict[str, str]) -> None:
    responses.post(f"{URL}/facts", status=status, headers=headers)
    with pytest.raises(PublishRefusedError, match="is elsewhere: "):
        publish(ManualClock(NOON))


@pytest.mark.parametrize("url", ["http://[x/t", "http://h:x/t", "http://a..b/t", "trains"])
def test_what_is_no_url_is_quoted(url: str) -> None:
    clock = ManualClock(NOON)
    with pytest.raises(SettingError, match="no URL that can be asked") as caught:
        publish(clock, url)
    assert repr(url) in str(caught.value)
    assert clock.now() == NOON


def test_which_urls_are_those_of_streams() -> None:
    streams = (
        "http://h/streams/s",
        "http://h/streams/s/",
        "http://h/data/streams/s",
        "http://h/streams/http%3A%2F%2Fe%2Fs",
        "http://h/streams/http://e/s",
    )
    assert all(map(is_stream, streams))
    others = (
        "http://h/s",
        "http://[x/streams/s",
        "",
        "http://h/streams/",
        "http://h/streams/s/trains",
        "http://h/my/streams/of/trains",
        "http://h/upstreams/s",
        "http://h/trains?from=/streams/s",
    )
    assert not any(map(is_stream, others))
