"""Pages over HTTP: reuse, revalidation, merging, retries, errors."""

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import combinations

import pytest
import requests
import responses
from hypothesis import given
from hypothesis import strategies as st

from annotations.clock import ManualClock, SystemClock
from annotations.namespaces import XSD
from annotations.terms import Quad
from tests.tpf_client.fragments.test_page_reader import COUNTS, FORM, PREFIXES
from tpf_client.errors import (
    ClosedError,
    ConnectionFailedError,
    HttpError,
    OriginError,
    PageTooLargeError,
    ParseError,
    SourceError,
)
from tpf_client.fragments import page_reader
from tpf_client.fragments.async_fetcher import AsyncFetcher
from tpf_client.fragments.fetcher import FetchOutcome, PageCache, Request
from tpf_client.fragments.page import Page
from tpf_client.fragments.page_reader import PageReader, ReadPage
from tpf_client.fragments.responses import Attempts, Limits, Response
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher

URL = "http://ex.org/d?p=x"
START = datetime(2020, 1, 1, tzinfo=UTC)
BODY = (
    PREFIXES
    + ":a :b :c . <#metadata> { <#metadata> foaf:primaryTopic <http://ex.org/d?p=x> ."
    + FORM
    + COUNTS
    + "}"
)
TRIG = {"content_type": "application/trig"}


def _fetcher(clock: ManualClock | None = None, **options: object) -> ThreadedFetcher:
    # One of the kind that `responses` answers in the place of.
    session = requests.Session()
    return ThreadedFetcher(
        clock=clock or ManualClock(START),
        parallelism=0,
        session=session,
        **options,  # type: ignore[arg-type]
    )


def _date(instant: datetime) -> str:
    return format_datetime(instant, usegmt=True)


def _showing(instant: datetime) -> str:
    """The page as it was evaluated at an instant."""
    told = f'"{instant:%Y-%m-%dT%H:%M:%S.%fZ}"^^<{XSD}dateTime>'
    said = f"<#f> <http://example.org/temporal#evaluatedAt> {told} ."
    return BODY.rstrip().removesuffix("}") + said + "}"


@responses.activate
def test_a_page_is_reused_while_fresh_and_revalidated_by_its_tag() -> None:
    clock = ManualClock(START)
    fetcher = _fetcher(clock)
    headers = {"Date": _date(START), "Cache-Control": "max-age=10", "ETag": '"1"'}
    responses.get(URL, body=BODY, headers=headers, **TRIG)
    first = fetcher.get(Request(URL))
    assert first.fresh_until == START + timedelta(seconds=10)
    clock.advance_to(START + timedelta(seconds=9))
    assert fetcher.get(Request(URL)) is first
    assert fetcher.statistics.requests == 1
    clock.advance_to(START + timedelta(seconds=11))
    responses.reset()
    headers = {"Date": _date(clock.now()), "Cache-Control": "max-age=60"}
    responses.get(
        URL,
        status=304,
        headers=headers,
        match=[responses.matchers.header_matcher({"If-None-Match": '"1"'})],
    )
    second = fetcher.get(Request(URL))
    assert second.facts == first.facts
    assert second.evaluated_at == clock.now()
    assert second.fresh_until == clock.now() + timedelta(seconds=60)
    assert fetcher.statistics.not_modified == 1


@responses.activate
def test_a_body_that_is_the_same_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(START)
    fetcher = _fetcher(clock)
    read: list[bytes] = []

    def counted(self: PageReader, body: bytes, *arguments: object, **options: object) -> ReadPage:
        read.append(body)
        return usual(self, body, *arguments, **options)  # type: ignore[arg-type]

    usual = PageReader.read
    monkeypatch.setattr(PageReader, "read", counted)
    found = []
    for body in (BODY, BODY, BODY.replace(":c", ":e"), BODY):
        clock.advance_to(clock.now() + timedelta(seconds=1))
        responses.upsert("GET", URL, body=body, headers={"Date": _date(clock.now())}, **TRIG)
        found.append(fetcher.get(Request(URL)))
    assert len(read) == 3
    assert found[0].facts == found[1].facts == found[3].facts != found[2].facts
    assert found[1].evaluated_at == START + timedelta(seconds=2)


@pytest.mark.parametrize(
    ("field", "seconds"),
    [("made;dur=2500.5", 2.5005), ("made;dur=2500.5, db;dur=1", 2.5005), ("made;dur=0", 0),
     ("", None), ("db;dur=9", None), ("made;dur=-1", None), ("made;dur=1e9", None),
     ("made;dur=nan", None), ("made;dur=9999999999", None)],
)  # fmt: skip
@responses.activate
def test_a_page_that_is_sent_again_tells_the_time_by_its_age(
    field: str, seconds: float | None
) -> None:
    shown = START + timedelta(minutes=3)
    now = shown + timedelta(seconds=2.5 if seconds is None else seconds)
    headers = {"Date": _date(now), "Server-Timing": field}
    responses.get(URL, body=_showing(shown), headers=headers, **TRIG)
    fetcher = _fetcher(ManualClock(START))
    page = fetcher.get(Request(URL))
    assert page.metadata.evaluated_at == shown
    # Without its age only the second of the answer is certain.
    least = now.replace(microsecond=0) if seconds is None else now
    assert page.evaluated_at == least
    assert fetcher.server_clock(URL).now() == least


@responses.activate
def test_a_page_that_has_not_changed_tells_the_time_by_its_age() -> None:
    shown = START + timedelta(milliseconds=250)
    clock = ManualClock(START)
    fetcher = _fetcher(clock)
    headers = {"Date": _date(START), "ETag": '"1"'}
    responses.get(URL, body=_showing(shown), headers=headers, **TRIG)
    assert fetcher.get(Request(URL)).evaluated_at == shown
    clock.advance_to(START + timedelta(seconds=20))
    headers = {"Date": _date(START + timedelta(seconds=20)), "Server-Timing": "made;dur=20000"}
    responses.get(URL, status=304, headers=headers)
    page = fetcher.get(Request(URL))
    assert responses.calls[1].request.headers["Cache-Control"] == "no-cache"
    assert page.evaluated_at == shown + timedelta(seconds=20) == fetcher.server_clock(URL).now()


@pytest.mark.parametrize(
    "field", [("Memento-Datetime", "now"), ("Age", "3"), ("Cache-Status", "nginx; hit")]
)
@responses.activate
def test_a_page_of_before_shows_its_own_instant(field: tuple[str, str]) -> None:
    shown = START + timedelta(minutes=3, milliseconds=400)
    headers = {"Date": _date(shown + timedelta(seconds=3)), "Server-Timing": "made;dur=3000"}
    responses.get(URL, body=_showing(shown), headers={**headers, field[0]: field[1]}, **TRIG)
    page = _fetcher(ManualClock(START)).get(Request(URL))
    assert (page.evaluated_at, page.cached) == (shown, field[0] != "Memento-Datetime")


@responses.activate
def test_what_says_nothing_of_freshness_is_asked_again_but_not_for_the_same_instant() -> None:
    clock = ManualClock(START)
    fetcher = _fetcher(clock)
    responses.get(URL, body=BODY, headers={"Date": _date(START)}, **TRIG)
    page = fetcher.get(Request(URL))
    assert fetcher.get(Request(URL, at=page.evaluated_at)) is page
    clock.advance_to(START + timedelta(seconds=1))
    fetcher.get(Request(URL))
    assert fetcher.statistics.requests == 2


@responses.activate
def test_a_server_that_is_busy_is_asked_again_when_it_says() -> None:
    clock = ManualClock(START)
    fetcher = _fetcher(clock)
    responses.get(URL, status=503, headers={"Retry-After": "7"})
    responses.get(URL, status=429, headers={"Retry-After": _date(START + timedelta(seconds=9))})
    responses.get(URL, body=BODY, **TRIG)
    assert len(fetcher.get(Request(URL)).facts) == 1
    assert clock.now() == START + timedelta(seconds=9)
    assert fetcher.statistics.retries == 2


class SetClock(SystemClock):
    """A clock of the machine that stands where it is set."""

    instant = START

    def now(self) -> datetime:
        return self.instant


@given(
    rate=st.floats(0.1, 200),
    asked=st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 2)), min_size=1, max_size=80),
)
def test_no_host_is_asked_more_often_than_is_polite(
    rate: float, asked: list[tuple[str, float]]
) -> None:
    clock = SetClock()
    pacing = Attempts(clock, Limits(max_requests_per_second=rate))
    sent: dict[str, list[float]] = {"a": [], "b": []}
    for host, pause in asked:
        clock.instant += timedelta(seconds=pause)
        wait = next(pacing.of(f"https://{host}.test/d?subject=x"))
        assert wait <= len(asked) / rate
        sent[host].append((clock.now() - START).total_seconds() + wait)
        assert next(pacing.of("http://127.0.0.1:3000/d")) == 0
    for times in sent.values():
        # A second's worth at once, and one more for each part of a second that has begun.
        for first, last in combinations(range(len(times)), 2):
            assert last - first <= rate * (times[last] - times[first] + 1) + 1e-3


def test_the_first_requests_to_a_host_wait_for_nothing() -> None:
    pacing = Attempts(SetClock(), Limits(max_requests_per_second=10))
    waits = [next(pacing.of("https://a.test/d")) for _ in range(12)]
    assert [wait > 0 for wait in waits] == [False] * 11 + [True]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_is_a_positive_number(rate: float) -> None:
    with pytest.raises(ValueError, match="max_requests_per_second"):
        Limits(max_requests_per_second=rate)


@responses.activate
def test_a_pause_that_is_too_long_is_not_made() -> None:
    clock = ManualClock(START)
    fetcher = _fetcher(clock, limits=Limits(max_backoff=30))
    responses.get(URL, status=503, headers={"Retry-After": "3600"})
    with pytest.raises(HttpError, match="503"):
        fetcher.get(Request(URL))
    assert clock.now() == START


@pytest.mark.parametrize(
    ("response", "error", "requests_sent"),
    [
        ({"status": 404}, HttpError, 1),
        ({"status": 500}, HttpError, 3),
        ({"body": "<html>", "content_type": "text/html"}, ParseError, 1),
        ({"body": BODY + " " * 10_000, **TRIG}, PageTooLargeError, 1),
        ({"body": requests.ReadTimeout("slow")}, ConnectionFailedError, 3),
        ({"body": requests.ConnectionError("refused")}, ConnectionFailedError, 3),
        ({"body": requests.exceptions.ChunkedEncodingError("cut")}, ConnectionFailedError, 3),
        ({"status": 302, "headers": {"Location": "http://evil.org/d"}}, OriginError, 1),
        ({"status": 301, "headers": {"Location": URL}}, SourceError, 1),
    ],
)
@responses.activate
def test_every_fault_is_a_typed_error_that_names_the_url(
    response: dict[str, object], error: type[Exception], requests_sent: int
) -> None:
    fetcher = _fetcher(limits=Limits(retries=2, max_page_bytes=8_000))
    responses.get(URL, **response)
    with pytest.raises(error, match=r"^http://ex\.org/d\?p=x: ") as caught:
        fetcher.get(Request(URL))
    assert fetcher.statistics.requests == requests_sent
    if isinstance(caught.value, HttpError):
        assert caught.value.status == response["status"]


@responses.activate
def test_what_an_error_says_is_read_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(quad: Quad) -> int:
        sizes.append(usual(quad))
        return sizes[-1]

    usual = page_reader.quad_size
    monkeypatch.setattr(page_reader, "quad_size", counted)
    said = '<> hydra:description "no" . '
    prefixes = f"@prefix hydra: <http://www.w3.org/ns/hydra/core#> . @prefix p: <{'x:' * 1_500}> . "
    for grown, text in (
        (said, "no"),
        (said + "p:a p:a " + "p:a," * 1_500 + "p:a .", "Bad Request"),
    ):
        sizes.clear()
        responses.upsert("GET", URL, status=400, body=prefixes + grown, content_type="text/turtle")
        with pytest.raises(HttpError, match=f"HTTP 400 {text}"):
            _fetcher().get(Request(URL))
        assert sum(sizes) < 1_100_000


@responses.activate
def test_redirects_on_the_same_origin_are_followed_also_to_https() -> None:
    responses.get(URL, status=301, headers={"Location": "https://ex.org/d?p=x"})
    responses.get("https://ex.org/d?p=x", body=BODY, **TRIG)
    assert len(_fetcher().get(Request(URL)).facts) == 1


def test_identical_requests_under_way_are_merged() -> None:
    asked = threading.Semaphore(0)
    go = threading.Event()

    def slow(request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        asked.release()
        assert go.wait(10)
        return (200, {"Content-Type": "application/trig", "Cache-Control": "max-age=60"}, BODY)

    with responses.RequestsMock() as server:
        server.add_callback("GET", URL, slow, content_type=None)
        fetcher = ThreadedFetcher(clock=SystemClock(), parallelism=4, session=requests.Session())
        answers: list[FetchOutcome] = []
        done = threading.Semaphore(0)

        def take(answer: FetchOutcome) -> None:
            answers.append(answer)
            done.release()

        for _ in range(5):
            fetcher.submit(Request(URL), take)
        assert asked.acquire(timeout=60)
        go.set()
        for _ in range(5):
            assert done.acquire(timeout=60)
        assert all(isinstance(answer, Page) for answer in answers)
        assert fetcher.statistics.requests == 1
        assert fetcher.statistics.merged == 4
        fetcher.close()
        fetcher.submit(Request("http://ex.org/other"), take)
        assert isinstance(answers[-1], ClosedError)


class Http:
    async def get(self, url: str, headers: Mapping[str, str]) -> Response:
        await asyncio.sleep(0)
        return Response(200, {"Content-Type": "application/trig"}, BODY.encode(), START, START)

    def close(self) -> None:
        """Has nothing open."""


@pytest.mark.parametrize("begun", [False, True])
def test_whoever_waits_in_a_loop_when_a_client_is_closed_is_told(begun: bool) -> None:
    async def ask() -> list[FetchOutcome]:
        fetcher = AsyncFetcher(Http(), clock=ManualClock(START))
        answers: list[FetchOutcome] = []
        fetcher.submit(Request(URL), answers.append)
        if begun:
            await asyncio.sleep(0)
        await fetcher.aclose()
        return answers

    (answer,) = asyncio.run(ask())
    assert isinstance(answer, ClosedError)


def test_nobody_joins_a_request_that_was_given_up() -> None:
    """As one query that had enough does, and the next one, at once."""

    async def ask() -> list[FetchOutcome]:
        fetcher = AsyncFetcher(Http(), clock=ManualClock(START))
        answers: list[FetchOutcome] = []
        enough = threading.Event()
        fetcher.submit(Request(URL), answers.append, enough)
        await asyncio.sleep(0)
        enough.set()
        fetcher.drop()
        fetcher.submit(Request(URL), answers.append)
        while not answers:
            await asyncio.sleep(0)
        await fetcher.aclose()
        return answers

    (answer,) = asyncio.run(ask())
    assert isinstance(answer, Page)


@responses.activate
def test_the_cache_is_bounded_in_bytes() -> None:
    clock = ManualClock(START)
    fetcher = _fetcher(clock, cache_bytes=3 * (1024 + 5 * len(BODY)))
    headers = {"Date": _date(START), "Cache-Control": "max-age=100"}
    for number in range(5):
        responses.get(f"{URL}{number}", body=BODY, headers=headers, **TRIG)
    for number in (0, 1, 2, 3, 4, 4, 3, 2):
        fetcher.get(Request(f"{URL}{number}"))
    assert fetcher.statistics.requests == 5
    fetcher.get(Request(f"{URL}0"))
    assert fetcher.statistics.requests == 6


def test_a_thread_that_cannot_be_started_is_a_failure_of_its_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    fetcher = ThreadedFetcher(clock=SystemClock())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(2):
        # Nobody is left to wait for the one that could not be asked for.
        answers: list[FetchOutcome] = []
        fetcher.submit(Request("http://127.0.0.1:9/d"), answers.append)
        (answer,) = answers
        assert isinstance(answer, ConnectionFailedError)
        assert "can't start new thread" in str(answer)
    fetcher.close()


@responses.activate
@pytest.mark.parametrize("parallelism", [0, 1])
def test_a_page_that_is_read_heeds_who_gives_up(parallelism: int) -> None:
    """Cancellation is checked every thousand quads."""
    data = "".join(f":a{n} :b :c . " for n in range(5_000))
    responses.get(URL, body=BODY.replace(":a :b :c .", data), **TRIG)
    looks = 0

    class Impatient(threading.Event):
        def is_set(self) -> bool:
            nonlocal looks
            looks += 1
            return looks > 4

    session = requests.Session()
    fetcher = ThreadedFetcher(clock=ManualClock(START), parallelism=parallelism, session=session)
    if parallelism:
        fetcher.submit(Request(URL), lambda _: None, Impatient())
        for pool in list(fetcher._pools.values()):
            pool.shutdown(wait=True)
    else:
        with pytest.raises(ClosedError, match="cancelled"):
            fetcher.get(Request(URL), Impatient())
    assert looks < 10
    assert fetcher._cache.get(URL) is None
    fetcher.close()


ROWS = 1000


def _labelled(version: int) -> bytes:
    """A page of labelled facts as our server writes it."""
    stations = [f"</station/{row:05d}>" for row in range(ROWS)]
    values = [(row * 7 + version) % 97 for row in range(ROWS)]
    lines = [
        "@prefix x: <http://www.w3.org/2001/XMLSchema#> .",
        "@prefix t: <http://example.org/temporal#> .",
        "@base <http://ex.org/> .",
        *(f'{s} <http://ex.org/delay> "{v}" .' for s, v in zip(stations, values, strict=True)),
        "<http://ex.org/d#m> {",
        f'_:l1 t:expiration "2020-01-0{version + 1}T00:00:00Z"^^x:dateTime .',
        f"_:l1 t:predicate </delay>;t:subject {','.join(stations)} .",
        "<http://ex.org/d#m> <http://xmlns.com/foaf/0.1/primaryTopic> <http://ex.org/d> .",
        "}",
    ]
    return "\n".join(lines).encode()


def test_pages_are_charged_what_they_take() -> None:
    url = "http://ex.org/d"
    body = _labelled(9)
    PageReader().read(body, "application/trig", url)
    gc.collect()
    tracemalloc.start()
    try:
        read = PageReader().read(body, "application/trig", url)
        page = Page(url, read.facts, read.metadata, START, START, size=len(body))
        del read
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    cache = PageCache(2**30)
    cache.put(page)
    size = cache._pages.currsize
    assert 0.75 * taken < size < 1.25 * taken, (size / len(body), taken / len(body))
