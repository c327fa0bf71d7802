"""Graphs of other servers: pages, changes, and failures."""

import threading
import time
from pathlib import Path

import pytest
import requests
import responses

from annotations.terms import Quad, Term
from experiments.free_port import free_port
from tests.support.continuous_site import ContinuousClient
from tests.support.running_server import TOKEN, RunningServer
from tpf_server.continuous.service import changing_graphs
from tpf_server.continuous.service.changing_graphs import RemoteGraph

NAME = Term("<urn:g>")
URL = "http://far.test/data"
NEXT = "<http://www.w3.org/ns/hydra/core#next>"
TRIG = "application/trig; charset=utf-8"
AT = "2020-01-01T00:00:00Z"
PATIENCE = 60


def quad(number: int) -> Quad:
    return Quad(Term("<urn:s>"), Term("<urn:p>"), Term(f'"{number}"'), NAME)


def page(*numbers: int, following: str | None = None) -> str:
    text = "".join(f'<urn:s> <urn:p> "{number}" .\n' for number in numbers)
    if following is not None:
        text += f"<#metadata> {{ <> {NEXT} <{following}> . <> <urn:says> <urn:more> }}"
    return text


@pytest.fixture
def graph() -> RemoteGraph:
    return RemoteGraph(NAME, URL, requests.Session())


@responses.activate
def test_credentials_are_sent_with_each_page_and_shown_nowhere() -> None:
    basic = [responses.matchers.header_matcher({"Authorization": "Basic dTpzZUBjcmV0"})]
    responses.get(URL, page(1, following=f"{URL}/2"), content_type=TRIG, match=basic)
    responses.get(f"{URL}/2", "no RDF", content_type=TRIG, match=basic)
    graph = RemoteGraph(NAME, "http://u:se%40cret@far.test/data", requests.Session())
    graph.read(AT)
    assert "cret" not in str(graph.state)
    assert f"{URL}/2: " in graph.state["reason"]


@responses.activate
def test_pages_are_followed_and_changes_told_once(graph: RemoteGraph) -> None:
    responses.get(URL, page(1, 2, following=f"{URL}/2"), content_type=TRIG)
    responses.get(f"{URL}/2", page(3), content_type=TRIG)
    graph.read(AT)
    assert graph.changes(0) == {quad(n): True for n in (1, 2, 3)}
    assert graph.changes(0) == {}
    assert graph.state == {
        "graph": "urn:g", "url": URL, "state": "read", "read": AT, "triples": 3,
    }  # fmt: skip
    for text in (page(2, 4), page(2, 3)):
        responses.replace(responses.GET, URL, text, content_type=TRIG)
        graph.read(AT)
    assert graph.changes(0) == {quad(1): False}


@responses.activate
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"status": 404}, "HTTP 404 Not Found"),
        ({"body": requests.ConnectionError("no")}, "no answer"),
        ({"body": requests.Timeout("no")}, "no answer in time"),
        ({"body": "<p>", "content_type": "text/html"}, "text/html is no RDF"),
        ({"body": "nonsense", "content_type": TRIG}, "nonsense"),
        (
            {"body": "<urn:a> <urn:b> " + "<<( <urn:a> <urn:b> " * 2000, "content_type": TRIG},
            "nested more than",
        ),
        ({"body": RuntimeError("odd")}, f"{URL}: RuntimeError('odd')"),
        *(
            ({"status": 302, "headers": {"Location": url}}, reason)
            for url, reason in (
                ("http://evil.test/x", "redirects to another origin: http://evil.test/x"),
                ("//evil.test/x", "redirects to another origin: http://evil.test/x"),
                ("https://far.test/data", "redirects to another origin: https://far.test/data"),
                ("file:///etc/passwd", "redirects to another origin: file:///etc/passwd"),
                ("http://[x", "redirects to no URL: Invalid IPv6 URL"),
                ("data", "more than 5 redirects"),
            )
        ),
        (
            {"body": page(1, following="http://\u2100.test/"), "content_type": TRIG},
            "its next page is of another origin: http://\u2100.test/",
        ),
        (
            {"body": page(1, following="http://evil.test/"), "content_type": TRIG},
            "its next page is of another origin: http://evil.test/",
        ),
    ],
)
def test_what_cannot_be_read_stays_as_it_was_and_says_why(
    graph: RemoteGraph, answer: dict[str, object], reason: str
) -> None:
    responses.get(URL, page(1), content_type=TRIG)
    graph.read(AT)
    graph.changes(0)
    responses.reset()
    responses.get(URL, **answer)
    graph.read("2020-01-02T00:00:00Z")
    assert graph.changes(0) == {}
    state = graph.state
    assert (state["state"], state["read"], state["failed"]) == (
        "failed", AT, "2020-01-02T00:00:00Z",
    )  # fmt: skip
    assert reason in state["reason"]


@responses.activate
def test_redirects_within_a_server_are_followed_and_others_never_asked(graph: RemoteGraph) -> None:
    elsewhere = responses.get("http://evil.test/data", page(9), content_type=TRIG)
    responses.get(URL, status=308, headers={"Location": "/moved"})
    responses.get("http://far.test/moved", page(1, following="/data/2"), content_type=TRIG)
    responses.get(f"{URL}/2", status=302, headers={"Location": "http://evil.test/data"})
    graph.read(AT)
    assert "evil.test" in graph.state["reason"]
    assert elsewhere.call_count == 0
    responses.replace(responses.GET, f"{URL}/2", page(2), content_type=TRIG)
    graph.read(AT)
    assert graph.changes(0) == {quad(n): True for n in (1, 2)}


class Dripping:
    """An endless answer."""

    ok = True
    is_redirect = False

    def __init__(self) -> None:
        self.raw = self

    def read1(self, _size: int, *, decode_content: bool) -> bytes:
        return b" "

    def __enter__(self) -> "Dripping":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_an_answer_that_does_not_end_is_given_up(
    graph: RemoteGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing_graphs, "_READING_SECONDS", 0.01)
    monkeypatch.setattr(graph._session, "get", lambda *_, **__: Dripping())
    graph.read(AT)
    assert graph.state["reason"] == f"{URL}: not read in 0.01 s"
    assert graph._asking is not None
    graph._asking.join(PATIENCE)
    assert not graph._asking.is_alive()


def test_who_still_waits_for_an_answer_does_not_ask_again(
    graph: RemoteGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads may drip as well."""
    there = threading.Event()

    def get(*_: object, **__: object) -> None:
        there.wait()
        raise requests.ConnectionError("no")

    monkeypatch.setattr(changing_graphs, "_READING_SECONDS", 0.01)
    monkeypatch.setattr(graph._session, "get", get)
    reasons = []
    for _ in range(2):
        graph.read(AT)
        reasons.append(graph.state["reason"])
    there.set()
    assert graph._asking is not None
    graph._asking.join(PATIENCE)
    monkeypatch.setattr(changing_graphs, "_READING_SECONDS", PATIENCE)
    graph.read(AT)
    assert [*reasons, graph.state["reason"]] == [
        f"{URL}: not read in 0.01 s",
        f"{URL}: an answer that takes too long still comes",
        f"{URL}: no answer, or one that is cut short",
    ]


def test_queries_follow_what_is_kept_elsewhere(tmp_path: Path) -> None:
    """The server reads itself, which fails at first."""
    port = free_port()
    config = f"""continuous = true
stream_time = "elements"
remote_interval = 0.1
allow_service = ["http://127.0.0.1:{port}"]
[remote]
"urn:far" = "http://127.0.0.1:{port}/board"
"urn:nowhere" = "http://127.0.0.1:{port}/nothing"
[datasets.board]
live = true
"""
    texts = {
        "cqels": "SELECT ?o { STREAM <s> [NOW] { ?s <urn:at> ?x } GRAPH <urn:far> { ?s ?p ?o } }",
        "csparql": "REGISTER QUERY csparql AS SELECT ?o FROM STREAM <s> [RANGE 1s STEP 1s]"
        " { ?s <urn:at> ?x GRAPH <urn:far> { ?s ?p ?o } }",
        "service": "SELECT ?o { STREAM <s> [NOW] { ?s <urn:at> ?x }"
        f" SERVICE <http://127.0.0.1:{port}/board> {{ ?s <urn:p> ?o }} }}",
    }
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with RunningServer(tmp_path, config, port=port) as server:
        client = ContinuousClient(server.origin[:-1], requests.Session(), headers)
        for name, text in texts.items():
            made = client.register(text, name=name)
            assert made.status_code == 201, made.text

        def remote() -> dict[str, dict[str, object]]:
            return {each["graph"]: each for each in client.get("queries/cqels")["remote"]}

        deadline = time.monotonic() + PATIENCE
        for number in (1, 2):
            path = f"board/facts?expiration=2100-01-0{number}T00:00:00Z"
            triples = {"Content-Type": "application/n-triples"}
            assert client.post(path, f'<urn:a> <urn:p> "{number}" .', triples).ok
            begun = remote()["urn:far"].get("read", "")
            # A reading that began after the fact was there: the second one that ends from now on.
            for _ in range(2):
                while remote()["urn:far"].get("read", "") == begun:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                begun = remote()["urn:far"]["read"]
            at = number * 1000
            lines = f"{at - 500}\t<urn:a>\t<urn:at>\t<urn:x>\n{at + 1}\t<urn:x>\t<urn:y>\t<urn:z>"
            assert client.post("streams/s", lines, {"Content-Type": "text/plain"}).ok
        assert remote()["urn:nowhere"]["state"] == "failed"
        assert "HTTP 404" in str(remote()["urn:nowhere"]["reason"])
        for name, relation in (("cqels", "added"), ("csparql", "result"), ("service", "added")):
            rows = [each[relation] for each in client.emissions(name)]
            assert rows == [[{"o": '"1"'}], [{"o": '"2"'}]]
