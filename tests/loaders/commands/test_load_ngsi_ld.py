"""``tpf-load ngsi-ld`` with a broker that is polled, and one that notifies."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from waitress.task import ThreadedTaskDispatcher
from waitress.trigger import trigger

from annotations.clock import SystemClock
from loaders.sources.base import FeedBatch
from loaders.sources.listening import Listener
from loaders.sources.ngsi_ld import NgsiLd
from loaders.sources.polling import LiveFeed
from tests.loaders.facts_server import FactsServer, listening
from tests.loaders.sources.test_ngsi_ld import NORMALISED, notification
from tests.loaders.test_cli import run

JSON = {"Content-Type": "application/json"}
SPEED = "https://uri.etsi.org/ngsi-ld/default-context/speed"


def vehicle(number: int) -> Any:
    return {**NORMALISED, "id": f"urn:ngsi-ld:Vehicle:{number}"}


def post(url: str, body: str, statuses: list[int]) -> None:
    statuses.append(requests.post(url, body, headers=JSON, timeout=60).status_code)


class Broker:
    """Answers with pages of entities, and takes published facts."""

    def __init__(self, following: Any) -> None:
        self.facts = FactsServer(SystemClock())
        self.asked: list[str] = []
        self._following = following

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] == "POST":
            return self.facts(environ, start_response)
        query = environ["QUERY_STRING"]
        self.asked.append(query)
        offset = int(query.rpartition("offset=")[2]) if "offset=" in query else 0
        headers = [("Content-Type", "application/ld+json")]
        if link := self._following(offset):
            headers.append(("Link", f'<{link}>; rel="next"; type="application/ld+json"'))
        start_response("200 OK", headers)
        return [json.dumps([vehicle(offset), vehicle(offset + 1)]).encode()]


def test_entities_are_polled_page_by_page(capsys: pytest.CaptureFixture[str]) -> None:
    broker = Broker(lambda offset: f"?type=Vehicle&offset={offset + 2}" if offset < 4 else None)
    with listening(broker) as origin:
        url = f"{origin}ngsi-ld/v1/entities?type=Vehicle"
        arguments = [url, "--push", f"{origin}fleet", "--token", "secret", "--polls", "1"]
        assert run("load", "ngsi-ld", *arguments) == 0, capsys.readouterr().err
    assert broker.asked == ["type=Vehicle", "type=Vehicle&offset=2", "type=Vehicle&offset=4"]
    (posted,) = broker.facts.accepted
    assert {line.split()[0] for line in posted.lines if SPEED in line} == {
        f"<urn:ngsi-ld:Vehicle:{number}>" for number in range(6)
    }


@pytest.mark.parametrize(
    ("following", "reason"),
    [
        (lambda _: "?type=Vehicle", "its pages have no end"),
        (lambda _: "http://elsewhere.example/", "its next page is elsewhere"),
    ],
)
def test_pages_that_lead_nowhere(
    capsys: pytest.CaptureFixture[str], following: Any, reason: str
) -> None:
    broker = Broker(following)
    with listening(broker) as origin:
        url = f"{origin}entities?type=Vehicle"
        arguments = [url, "--push", f"{origin}fleet", "--token", "secret", "--polls", "1"]
        assert run("load", "ngsi-ld", *arguments) == 1
    assert reason in capsys.readouterr().err
    assert broker.facts.accepted == []


def test_recorded_notifications(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    for minute in (0, 1):
        told = notification(vehicle(minute), at=f"2026-01-05T07:0{minute}:00Z")
        (recorded / f"{minute}.json").write_text(json.dumps(told))
    facts = tmp_path / "facts.nq"
    assert run("load", "ngsi-ld", recorded, "--facts", facts) == 0, capsys.readouterr().err
    for instant in ("T07:00:00Z", "T07:01:00Z", "T07:01:30Z"):
        assert f'"2026-01-05{instant}"' in facts.read_text()


def heard(
    token: str | None, send: Callable[[str], None], live: LiveFeed, host: str = "127.0.0.1"
) -> Iterator[FeedBatch]:
    """The batches of a listener while somebody sends to it."""
    senders: list[threading.Thread] = []

    def ready(origin: str) -> None:
        senders.append(threading.Thread(target=send, args=(origin,)))
        senders[0].start()

    holds = timedelta(seconds=60)
    listener = Listener("n", f"listen://{host}:0", NgsiLd().read, holds, token, live, ready)
    try:
        yield from listener.batches(None, None)
    finally:
        senders[0].join(60)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_broker_notifies(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), 0), family=family).close()
    except OSError:
        pytest.skip(f"this machine has no {host}")
    statuses: list[int] = []

    def notify(origin: str) -> None:
        statuses.append(requests.get(origin, timeout=60).status_code)
        one = json.dumps(notification(vehicle(1)))
        for body, token in (
            ("{", "t"), (one, "wrong"), (one, "t"), (json.dumps(notification()), "t"), (one, "t"),
        ):  # fmt: skip
            headers = JSON | {"Authorization": f"Bearer {token}"}
            statuses.append(requests.post(origin, body, headers=headers, timeout=60).status_code)

    refused: list[str] = []
    live = LiveFeed(SystemClock(), threading.Event(), refused.append, 2)
    first, second = heard("t", notify, live, host)
    assert statuses == [405, 400, 401, 204, 204, 204]
    assert len(refused) == 1
    # What is said twice is told twice, at an instant of its own.
    assert first.quads == second.quads
    assert first.at < second.at
    assert first.end - first.at == timedelta(seconds=60)


def load_while_sending(
    monkeypatch: pytest.MonkeyPatch, server: Any, send: Callable[[str], None], *options: str
) -> tuple[int, list[str]]:
    """The status of the command that listens, and what it said since it was ready."""
    echoed: list[str] = []
    senders: list[threading.Thread] = []

    def told(text: str, err: bool) -> None:
        echoed.append(text)
        if found := re.search(r"listening at (\S+)", text):
            senders.append(threading.Thread(target=send, args=(found[1],)))
            senders[0].start()

    monkeypatch.setattr("loaders.commands.load_feeds.typer.echo", told)
    with listening(server) as origin:
        arguments = ["listen://127.0.0.1:0", "--push", f"{origin}fleet", "--token", "secret"]
        status = run("load", "ngsi-ld", *arguments, *options)
        senders[0].join(60)
    return status, echoed[1:]


def test_the_command_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = FactsServer(SystemClock())
    sent: list[int] = []
    body = json.dumps(notification(vehicle(1)))
    options = ("--polls", "1", "--holds", "60")
    status, _ = load_while_sending(monkeypatch, facts, lambda url: post(url, body, sent), *options)
    # Acknowledged when the server had it.
    assert (status, sent) == (0, [204])
    assert len(facts.accepted) == 1


def test_a_document_that_the_server_refuses_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may post could stop the feed of all others; only a wrong token ends it."""
    facts = FactsServer(SystemClock())
    refusing = [422, 400, 413, None, 403]
    sent: list[int] = []

    def server(environ: dict[str, Any], start_response: Any) -> Any:
        status = refusing.pop(0)
        if status is None:
            return facts(environ, start_response)
        start_response(f"{status} Refused", [("Content-Type", "text/plain")])
        return [b"two labels overlap"]

    def post_all(url: str) -> None:
        for number in range(5):
            post(url, json.dumps(notification(vehicle(number))), sent)

    status, echoed = load_while_sending(monkeypatch, server, post_all)
    assert (status, sent) == (1, [422, 422, 422, 204, 503])
    assert [each.rpartition(" ")[2] for each in echoed] == ["overlap"] * 3
    assert len(facts.accepted) == 1


def test_who_is_not_told_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    for owner, name in ((ThreadedTaskDispatcher, "shutdown"), (trigger, "close")):
        monkeypatch.setattr(owner, name, logged(getattr(owner, name), steps))
    stopped = threading.Event()
    statuses: list[int] = []
    senders: list[threading.Thread] = []
    body = json.dumps(notification(vehicle(1)))

    def ready(origin: str) -> None:
        senders.append(threading.Thread(target=post, args=(origin, body, statuses)))
        senders[0].start()

    listener = Listener(
        "n", "listen://localhost:0", NgsiLd().read, timedelta(seconds=60), None,
        LiveFeed(SystemClock(), stopped), ready,
    )  # fmt: skip
    batches = iter(listener.batches(None, None))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    senders[0].join(60)
    assert statuses == [503]
    # No thread may write to the descriptor that wakes the loop when it is closed already.
    assert steps == ["shutdown", "close"]


def logged(function: Any, steps: list[str]) -> Any:
    def call(*arguments: Any) -> Any:
        steps.append(function.__name__)
        return function(*arguments)

    return call


@pytest.mark.parametrize("token", [None, "t"])
def test_a_web_page_publishes_nothing(token: str | None) -> None:
    """Requests that a browser may send: its own origin and name, types of forms."""
    attempts = [
        ({"Origin": "https://page.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Host": "page.example"}, 204 if token else 421),
        ({"Host": "127.0.0.1.page.example:80"}, 204 if token else 421),
        ({"Host": "localhost"}, 204),
        ({"Host": "[::1]:8080"}, 204),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "text/plain; x=application/json"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Content-Type": "Application/LD+JSON; charset=utf-8"}, 204),
    ]
    body = json.dumps(notification(vehicle(1)))
    authorized = {"Authorization": f"Bearer {token}"} if token else {}
    statuses: list[int] = []
    stopped = threading.Event()

    def post_all(origin: str) -> None:
        for headers, _ in attempts:
            sent = JSON | authorized | headers
            statuses.append(requests.post(origin, body, headers=sent, timeout=60).status_code)
        stopped.set()

    batches = list(heard(token, post_all, LiveFeed(SystemClock(), stopped)))
    assert statuses == [status for _, status in attempts]
    assert len(batches) == statuses.count(204)
