import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from loaders import fetching
from loaders.errors import InputError
from loaders.fetching import checked_response, fetched_pages, host_parts
from tests.loaders.facts_server import listening
from tests.support.eventually import eventually


class Page:
    """Answers everything in one way."""

    def __init__(self, status: str, *headers: tuple[str, str]) -> None:
        self.status = status
        self.headers = list(headers)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        start_response(self.status, [*self.headers, ("Content-Length", "2")])
        return [b"{}"]


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as made:
        yield made


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (Page("200 OK", ("Link", '<http://[>; rel="next"')), "next page is at no URL: http://["),
        (Page("302 Found", ("Location", "http://[x/")), "no URL that can be asked"),
    ],
)
def test_an_answer_that_leads_to_no_url(session: requests.Session, page: Page, reason: str) -> None:
    with listening(page) as origin:
        with pytest.raises(InputError) as caught:
            checked_response(session, origin)
        assert str(caught.value).startswith(f"{origin}: ")
    assert reason in str(caught.value)


def test_whatever_goes_wrong_is_told() -> None:
    class Broken(requests.Session):
        def get(self, *_: object, **__: object) -> Any:
            raise MemoryError

    with pytest.raises(InputError, match="http://h/: an answer that is cut short or damaged"):
        checked_response(Broken(), "http://h/")


def test_a_request_that_was_given_up_ends(
    session: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def drip(_environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        while not released.wait(0.01):
            yield b"\n"

    monkeypatch.setattr(fetching, "_SECONDS", 0.2)
    with listening(drip) as origin:
        try:
            with pytest.raises(InputError, match="no complete answer"):
                checked_response(session, origin)
            eventually(lambda: not any("_ask" in each.name for each in threading.enumerate()))
        finally:
            released.set()


@pytest.mark.parametrize("following", ["http://elsewhere.example/", "http://a\N{ACCOUNT OF}b/"])
def test_pages_of_another_origin_are_not_asked_for(
    session: requests.Session, following: str
) -> None:
    link = f'<{following}>; rel="next"'.encode().decode("latin-1")
    with listening(Page("200 OK", ("Link", link))) as origin:
        pages = fetched_pages(session, origin)
        with pytest.raises(InputError, match="its next page is"):
            list(pages)


def test_the_parts_of_a_url_of_a_host() -> None:
    for wrong in ("http://[x/", "http://h:x/", "http://h:99999/", "http:///x", "x", ""):
        assert host_parts(wrong) is None, wrong
    parts = host_parts("mqtt://u:p@h:7/x")
    assert parts is not None
    assert (parts.hostname, parts.port, parts.username) == ("h", 7, "u")
