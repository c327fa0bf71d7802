"""Queries at the fragment server, passed to the query process."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import rdflib
import requests

from annotations.clock import SystemClock
from annotations.labels import Expiration
from annotations.terms import Quad, iri, literal
from tests.support.running_server import STOP_SECONDS, RunningServer
from tests.tpf_client.test_live_endpoint import Reader
from tpf_server.app import create_app, create_blueprint
from tpf_server.errors import SettingsError
from tpf_server.query_process import QueryProcess
from tpf_server.settings import Settings, example_files
from tpf_server.web import query_front

EX = "http://example.org/"
CONFIG = (
    'query = true\nfollowers = 6\nbase_url = "http://data.example.org/fragments/"\n'
    '[datasets.trains]\nsource = "trains.nt"\nlive = true\nmax_age = 1\n'
    '[datasets.stops]\nsource = "stops.nt"\nlive = false\n'
)
ALL = "SELECT * { ?s ?p ?o }"
DELAYS = f"SELECT ?delay {{ ?train <{EX}delay> ?delay }}"


def process_of(server: RunningServer) -> psutil.Process | None:
    """The process that answers queries."""
    for each in psutil.Process(server.process.pid).children():
        # One that has ended has no command any more, or is gone.
        with suppress(psutil.NoSuchProcess):
            if "tpf_client.beside_server" in each.cmdline():
                return each
    return None


def until_there(server: RunningServer, but: int | None = None) -> psutil.Process:
    """Return the answering query process other than `but`."""
    end = time.monotonic() + 60
    while True:
        found = process_of(server)
        if found is not None and found.pid != but:
            status = requests.get(f"{server.origin}query/page.json", timeout=30).status_code
            if status == 200:
                return found
            assert status == 503
        assert time.monotonic() < end
        time.sleep(0.05)


def publish(server: RunningServer, delay: str) -> None:
    quad = Quad(iri(EX + "t1"), iri(EX + "delay"), literal(delay))
    server.publish("trains", [quad], Expiration(datetime.now(UTC) + timedelta(hours=1)))


def answer(server: RunningServer, path: str, query: str = ALL) -> list[dict[str, Any]]:
    response = requests.get(server.origin + path, {"query": query}, timeout=60)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]["bindings"]
    return found


def folder_of(factory: pytest.TempPathFactory) -> Path:
    folder = factory.mktemp("query")
    (folder / "trains.nt").write_text(f'<{EX}t1> <{EX}name> "one" .\n')
    (folder / "stops.nt").write_text(f'<{EX}s1> <{EX}name> "stop" .\n')
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(folder_of(tmp_path_factory), CONFIG) as server:
        publish(server, "0")
        yield server


def test_queries_are_answered_over_all_datasets_and_over_one(server: RunningServer) -> None:
    for path, count in (("sparql", 3), ("query/sparql", 3), ("trains/sparql", 2),
                        ("stops/sparql", 1), ("trains/query/sparql", 2)):  # fmt: skip
        assert len(answer(server, path)) == count
    posted = requests.post(
        server.origin + "sparql", ALL.encode(), timeout=60,
        headers={"Content-Type": "application/sparql-query", "Accept": "text/csv"},
    )  # fmt: skip
    assert len(posted.text.split()) == 4
    head = requests.head(server.origin + "sparql", params={"query": ALL}, timeout=60)
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [("sparql?query=SELECT%20*%20{%20?s", 400, "line 1, column"),
     ("nowhere/sparql", 404, "nowhere"), ("nowhere/query/", 404, "nowhere"),
     ("query/nothing", 404, "/sparql")],
)  # fmt: skip
def test_what_is_wrong_is_said(server: RunningServer, path: str, status: int, said: str) -> None:
    response = requests.get(server.origin + path, timeout=60)
    assert response.status_code == status
    assert said in response.text


@pytest.mark.parametrize("path", [b"/sparql?query=\xc3\xa9", b"/query/\xe9", b"/query/?\xe9=\xff"])
def test_bytes_beyond_ascii_are_no_failure(server: RunningServer, path: bytes) -> None:
    host, port = urlsplit(server.origin).hostname, urlsplit(server.origin).port
    with socket.create_connection((host, port), timeout=60) as connection:
        request = b"GET %b HTTP/1.1\r\nHost: %b:%d\r\nConnection: close\r\n\r\n"
        connection.sendall(request % (path, str(host).encode(), port))
        status = int(connection.makefile("rb").readline().split()[1])
    assert status < 500


def test_what_is_too_long_or_has_no_length_is_refused(server: RunningServer) -> None:
    headers = {"Content-Type": "application/sparql-query"}
    for size, status in ((2**18, 400), (2**18 + 1, 413)):
        asked = requests.post(server.origin + "sparql", b" " * size, headers=headers, timeout=60)
        assert asked.status_code == status
    chunked = requests.post(
        server.origin + "sparql", iter([ALL.encode()]), headers=headers, timeout=60
    )
    assert chunked.status_code == 411
    assert requests.put(server.origin + "sparql", b"", timeout=60).status_code == 405


def test_the_service_describes_itself_as_its_readers_see_it(server: RunningServer) -> None:
    forged = {"X-Tpf-At": "http://evil.example", "X-Tpf-Over": "stops", "Host": "evil.example"}
    for path, datasets in (("sparql", 2), ("trains/sparql", 1)):
        text = requests.get(server.origin + path, headers=forged, timeout=60).text
        graph = rdflib.Graph().parse(data=text, format="turtle")
        url = rdflib.URIRef(f"http://data.example.org/fragments/{path}")
        service = rdflib.URIRef("http://www.w3.org/ns/sparql-service-description#Service")
        assert list(graph.subjects(rdflib.RDF.type, service)) == [url]
        assert len(list(graph.subject_objects(rdflib.DCTERMS.source))) == datasets
    catalog = requests.get(server.origin, headers={"Accept": "text/turtle"}, timeout=60).text
    for name in ("trains", "stops"):
        endpoint = f"<http://data.example.org/fragments/{name}/sparql>"
        assert f"{endpoint} ." in catalog or f"{endpoint} ;" in catalog
    documentation = requests.get(server.origin + "api-doc", timeout=60).json()
    addresses = json.dumps(documentation["entrypoint"])
    for path in ("sparql", "query/", "{name}/sparql", "{name}/query/"):
        assert f'"http://data.example.org/fragments/{path}"' in addresses


def test_pages_of_other_origins_may_ask(server: RunningServer) -> None:
    origin = {"Origin": "https://elsewhere.example"}
    preflight = requests.options(
        server.origin + "sparql", timeout=60,
        headers={**origin, "Access-Control-Request-Method": "POST"},
    )  # fmt: skip
    assert preflight.status_code == 204
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    asked = requests.get(server.origin + "sparql", {"query": ALL}, headers=origin, timeout=60)
    assert asked.headers["Access-Control-Allow-Origin"] == "*"


def test_the_page_is_there_and_pages_lead_to_it(server: RunningServer) -> None:
    moved = requests.get(server.origin + "query", allow_redirects=False, timeout=60)
    assert moved.status_code == 308
    page = requests.get(server.origin + "query/", timeout=60)
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    same = {"If-None-Match": page.headers["ETag"]}
    assert requests.get(server.origin + "query/", headers=same, timeout=60).status_code == 304
    script = requests.get(server.origin + "trains/query/page.js", timeout=60)
    assert script.headers["Content-Encoding"] == "gzip"
    told = requests.get(server.origin + "trains/query/page.json", timeout=60).json()
    assert told["datasets"] == ["http://data.example.org/fragments/trains"]
    html = {"Accept": "text/html"}
    linked = requests.get(server.origin + "trains", headers=html, timeout=60).text
    start = "http://data.example.org/fragments/trains/query/#query="
    assert linked.count(f'href="{start}') == 2
    index = requests.get(server.origin, headers=html, timeout=60).text
    assert 'href="http://data.example.org/fragments/query/"' in index


def test_an_answer_is_followed_and_taken_up_again(server: RunningServer) -> None:
    publish(server, "1")
    reader = Reader(server.origin + "trains/sparql", DELAYS)
    name, told = reader.next()
    assert (name, len(told["added"])) == ("initial", 1)
    publish(server, "2")
    while name != "update":
        name, told = reader.next()
    assert told["added"] == [{"delay": {"type": "literal", "value": "2"}}]
    last = reader.last
    reader.response.close()
    again = Reader(server.origin + "trains/sparql", DELAYS, last)
    assert again.next()[0] == "up-to-date"
    again.response.close()


def test_so_many_may_wait_and_a_process_that_dies_is_replaced(server: RunningServer) -> None:
    process = until_there(server)
    readers: list[Reader] = []
    end = time.monotonic() + 60
    # Those of readers that went a moment ago are taken still.
    while len(readers) < 6:
        reader = Reader(server.origin + "sparql", DELAYS)
        if reader.status == 200:
            reader.next()
            readers.append(reader)
        else:
            assert (reader.status, time.monotonic() < end) == (503, True)
            time.sleep(0.05)
    refused = Reader(server.origin + "sparql", DELAYS)
    assert refused.status == 503
    assert refused.response.headers["Retry-After"]
    assert "6 wait" in refused.response.text
    # The page shows this to its reader, and a preflight comes before it.
    assert requests.get(server.origin + "query/", timeout=60).status_code == 200
    assert requests.options(server.origin + "sparql", timeout=60).status_code == 204
    assert requests.head(server.origin + "sparql", timeout=60).status_code == 503
    # Fragments have threads of their own.
    assert requests.get(server.origin + "trains", timeout=60).status_code == 200
    os.kill(process.pid, signal.SIGKILL)
    for each in readers:
        with pytest.raises(EOFError):
            each.until("nothing that comes")
    assert requests.get(server.origin + "trains", timeout=60).status_code == 200
    until_there(server, process.pid)
    assert len(answer(server, "stops/sparql")) == 1


def test_an_answer_that_is_cut_off_cannot_be_read_as_whole_and_is_one_line_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f'<{EX}t{n}> <{EX}name> "{n}" .\n' for n in range(1_000))
    (tmp_path / "trains.nt").write_text(rows)
    config = 'query = true\nquery_rows = 500\n[datasets.trains]\nsource = "trains.nt"\n'
    json_results = "application/sparql-results+json"
    kinds = [json_results, "text/csv", "text/tab-separated-values"]
    with RunningServer(tmp_path, config) as server:
        until_there(server)
        capsys.readouterr()
        for kind in kinds:
            for path in ("sparql", "query/sparql", "trains/sparql"):
                response = requests.get(
                    server.origin + path, {"query": ALL}, headers={"Accept": kind}, timeout=60
                )
                assert response.status_code == 200
                *whole, last = response.text.split("\n")
                assert last == '"the answer was cut off'
                if kind == json_results:
                    with pytest.raises(ValueError, match=r"."):
                        response.json()
                else:
                    assert len(whole) <= 502
    said = capsys.readouterr().err.splitlines()
    assert said == ["an answer was cut off: more than 500 solutions"] * 9


def test_it_is_off_by_default_and_wrong_settings_are_refused(tmp_path: Path) -> None:
    assert not Settings().query
    with pytest.raises(SettingsError, match="nowhere"):
        example_files(str(tmp_path / "nowhere"))
    with pytest.raises(SettingsError, match="tpf-query serve"):
        create_blueprint(Settings(query=True), [], None)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="query_rows"):
        Settings(query_rows=0)


def test_a_reload_changes_it_and_it_ends_with_the_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = folder_of(tmp_path_factory)
    start = 'query = true\n[datasets.trains]\nsource = "trains.nt"\nlive = true\n'
    with RunningServer(folder, start) as server:
        process = until_there(server)
        config = folder / "server.toml"
        config.write_text(f'{config.read_text()}[datasets.stops]\nsource = "stops.nt"\n')
        server.process.send_signal(signal.SIGHUP)
        changed = until_there(server, process.pid)
        # The workers heed settings by themselves.
        end = time.monotonic() + 60
        while requests.get(f"{server.origin}stops", timeout=30).status_code == 404:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert len(answer(server, "stops/sparql")) == 1
        assert not process.is_running()
        # What is refused leaves it alone, too.
        good = config.read_text()
        config.write_text(f'{good}[datasets.gone]\nsource = "gone.nt"\n')
        server.process.send_signal(signal.SIGHUP)
        time.sleep(1)
        assert until_there(server).pid == changed.pid
        config.write_text(good)
        # What does not concern it leaves it alone.
        config.write_text(f'title = "Changed"\n{config.read_text()}')
        server.process.send_signal(signal.SIGHUP)
        html = {"Accept": "text/html"}
        end = time.monotonic() + 60
        while "Changed" not in requests.get(server.origin, headers=html, timeout=60).text:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert until_there(server).pid == changed.pid
        reader = Reader(server.origin + "sparql", ALL)
        reader.next()
        server.process.terminate()
        assert server.process.wait(STOP_SECONDS) == 0
        assert not changed.is_running()


def test_it_does_not_outlive_a_server_that_is_killed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    start = 'query = true\n[datasets.trains]\nsource = "trains.nt"\n'
    with RunningServer(folder_of(tmp_path_factory), start) as server:
        process = until_there(server)
        server.process.kill()
        process.wait(60)


def test_settings_that_were_read_again_count(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float | None, str, str]] = []

    def request(
        connection: HTTPConnection, _method: str, _url: str, _body: None, headers: dict[str, str]
    ) -> None:
        asked.append((connection.timeout, headers["X-Tpf-At"], headers["X-Tpf-Reader"]))
        raise ConnectionRefusedError

    monkeypatch.setattr(query_front._UnixConnection, "request", request)
    front = query_front.QueryFront("nowhere", Settings(query=True))
    for settings in (
        Settings(query=True, base_url="http://a.test/", query_seconds=1),
        Settings(query=True, base_url="http://b.test/", query_seconds=2, trust_forwarded=True),
    ):
        client = create_app(settings, [], SystemClock(), queries=front).test_client()
        client.get("/sparql?query=x", headers={"X-Forwarded-For": "10.0.0.1"})
    assert asked == [
        (61.0, "http://a.test/", "127.0.0.1"),
        (62.0, "http://b.test/", "10.0.0.1"),
    ]


def test_a_process_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    tries = 0

    def begin(*_: object, **options: Any) -> "subprocess.Popen[bytes]":
        nonlocal tries
        tries += 1
        if tries == 1:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        begun.append(real([sys.executable, "-c", "import sys; sys.stdin.read()"], **options))
        return begun[-1]

    real = subprocess.Popen
    monkeypatch.setattr("tpf_server.query_process.subprocess.Popen", begin)
    process = QueryProcess(str(tmp_path / "socket"))
    process.start(lambda: False)
    end = time.monotonic() + 30
    while not begun:
        assert time.monotonic() < end
        time.sleep(0.05)
    process.close()
    assert begun[0].poll() is not None
    assert "cannot start: [Errno 11]" in capsys.readouterr().err
