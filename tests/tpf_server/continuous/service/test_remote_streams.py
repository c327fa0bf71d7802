"""Streams of other servers: read as events, pushed to in batches, over restarts of the other."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest
import requests
import responses

from annotations.clock import SystemClock
from experiments.free_port import free_port
from tests.support.continuous_site import ROOT, ContinuousClient, Site, element
from tests.support.running_server import TOKEN, RunningServer, workers_of
from tpf_server.continuous.runtime.elements.elements import Element
from tpf_server.continuous.runtime.errors import EngineClosedError, RegistrationsError
from tpf_server.continuous.service.remote_streams import StreamReader, StreamWriter
from tpf_server.continuous.service.result_log import Receipt

AUTH = {"Authorization": f"Bearer {TOKEN}"}
MADE = "CONSTRUCT { ?a <urn:q> ?b } { STREAM <s> [NOW] { ?a <urn:p> ?b } }"
CONFIG = """continuous = true
keep_queries = true
stream_time = "elements"
[datasets.data]
source = "data.nt"
[allow_streams]
"http://127.0.0.1:PORT" = "open sesame"
"""
SECONDS = 90.0
"""More than the longest pause between two attempts, which a slow start of a server leads to."""


def eventually(found: Callable[[], Any], wanted: Any) -> None:
    """Wait until something is what it should be."""
    deadline = time.monotonic() + SECONDS
    while (last := found()) != wanted:
        assert time.monotonic() < deadline, last
        time.sleep(0.05)


class Servers:
    """Two servers that know each other, each of which can be started again."""

    def __init__(self, folder: Path) -> None:
        self.ports = (free_port(), free_port())
        self.folders = (folder / "first", folder / "second")
        for each in self.folders:
            each.mkdir()
            (each / "data.nt").write_text("<urn:x> <urn:y> <urn:z> .\n")

    def start(self, number: int) -> RunningServer:
        config = CONFIG.replace("PORT", str(self.ports[1 - number]))
        return RunningServer(self.folders[number], config, port=self.ports[number])

    def url(self, number: int) -> str:
        return f"http://127.0.0.1:{self.ports[number]}"

    def client(self, number: int) -> ContinuousClient:
        return ContinuousClient(self.url(number), requests.Session(), AUTH)

    def register(self, number: int, text: str, **options: str) -> None:
        made = self.client(number).register(text, **options)
        assert made.status_code == 201, made.text

    def push(self, number: int, *instants: int) -> None:
        body = "".join(f"{at}\t<urn:a>\t<urn:p>\t<urn:n{at}>\n" for at in instants)
        tsv = {"Content-Type": "text/tab-separated-values"}
        assert self.client(number).post("streams/s", body, tsv).ok

    def wait(self, number: int, name: str, first: int, end: int) -> None:
        """Wait until a query has emitted every tenth number, in this order, and each once."""
        wanted = [*range(first, end, 10)]
        eventually(
            lambda: [each for each in self.seen(number, name) if first <= each < end], wanted
        )

    def seen(self, number: int, name: str) -> list[int]:
        """The numbers of the nodes in the rows of a query, in the order of its emissions."""
        rows = [row for each in self.client(number).emissions(name) for row in each["added"]]
        return [int(row["b"].removeprefix("<urn:n").removesuffix(">")) for row in rows]


def stop(server: RunningServer, how: signal.Signals = signal.SIGTERM) -> None:
    workers = workers_of(server.process.pid)
    server.process.send_signal(how)
    assert server.process.wait(60) == (0 if how == signal.SIGTERM else -how)
    if how == signal.SIGKILL:
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        psutil.wait_procs(workers, SECONDS)


@pytest.fixture
def servers(tmp_path: Path) -> Servers:
    return Servers(tmp_path)


def test_results_of_another_server_are_a_stream_and_its_streams_are_fed(servers: Servers) -> None:
    reading = (
        "REGISTER ISTREAM <read> AS SELECT ?b FROM NAMED WINDOW <w> ON <URL> "
        "[RANGE PT0.01S STEP PT0.01S] WHERE { WINDOW <w> { ?a <urn:q> ?b } }"
    )
    feeding = (
        "REGISTER STREAM <URL> COMPUTED EVERY 10ms AS CONSTRUCT { ?a <urn:q> ?b } "
        "FROM STREAM <s> [RANGE 10ms STEP 10ms] { ?a <urn:p> ?b }"
    )
    url = f"{servers.url(0)}/queries/made/results"
    with servers.start(1) as second:
        with servers.start(0) as first:
            servers.register(0, MADE, name="made")
            servers.register(1, reading.replace("URL", url), name="read")
            came = "SELECT ?b { STREAM <fed> [NOW] { ?a <urn:q> ?b } }"
            servers.register(1, came, name="came")
            servers.register(0, feeding.replace("URL", f"{servers.url(1)}/streams/fed"))
            servers.push(0, *range(5, 205, 10))
            # The last window is open as long as nothing comes behind it.
            for name in ("read", "came"):
                servers.wait(1, name, 5, 195)
            stop(first, signal.SIGKILL)
        state = servers.client(1).get("queries/read")
        assert (state["state"], url in state["reason"]) == ("degraded", True)
        assert "degraded" in [each["state"] for each in servers.client(1).get("queries")["queries"]]
        with servers.start(0) as first:
            servers.push(0, *range(205, 305, 10))
            servers.wait(1, "read", 5, 295)
            # What was in a window of a server that was killed is gone.
            servers.wait(1, "came", 205, 295)
            state = servers.client(1).get("queries/read")
            assert (state["state"], len(state["remote_streams"])) == ("running", 1)
            stop(second)
            servers.push(0, *range(305, 405, 10))
            with servers.start(1):
                # The reader begins anew with what is kept there, and knows what it took.
                servers.wait(1, "read", 305, 395)
                servers.wait(1, "came", 205, 395)
                stop(first)
                with servers.start(0):
                    servers.push(0, *range(405, 505, 10))
                    servers.wait(1, "came", 405, 495)
                    for name in ("read", "came"):
                        seen = servers.seen(1, name)
                        assert seen == sorted(set(seen))


FAR = "http://far.test/queries/q/results"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"SELECT * {{ STREAM <{FAR}> [NOW] {{ ?a ?b ?c }} }}", {}),
        (f"REGISTER QUERY q AS SELECT * FROM STREAM <{FAR}> [RANGE 1s STEP 1s] {{ ?a ?b ?c }}", {}),
        (
            f"REGISTER RSTREAM <o> AS SELECT * FROM NAMED WINDOW <w> ON <{FAR}> "
            "[RANGE PT1S STEP PT1S] { WINDOW <w> { ?a ?b ?c } }",
            {},
        ),
        (MADE, {"into": FAR}),
    ],
)
def test_a_stream_that_is_elsewhere_is_refused_unless_a_setting_allows_it(
    text: str, options: dict[str, str]
) -> None:
    """But for one that is here under such a name."""
    site = Site()
    refused = site.register(text, **options)
    reason = f"<{FAR}> is at no server in the setting allow_streams, and no stream here"
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith(reason)
    assert site.service.streams() == []
    site.service.create_stream(FAR)
    assert site.register(text, **options).status_code == 201
    for allowed, status in (("http://far.test", 201), ("http://far.test:80", 422)):
        allowing = Site(policies={"streams": {allowed: ""}})
        made = allowing.register(text, **options)
        assert made.status_code == status
        assert ("remote_streams" in made.json()) == (status == 201)


def emission(number: int, **rows: Any) -> str:
    found = {"sequence": 1, "at": "1970-01-01T00:00:00.001Z", **rows}
    return f"id: {number}\ndata: {json.dumps(found)}\n\n"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty(SystemClock):
        def wait(self, duration: timedelta, cancelled: Event | None = None) -> bool:
            return super().wait(min(duration, timedelta(milliseconds=1)), cancelled)

    monkeypatch.setattr(
        "tests.tpf_server.continuous.service.test_remote_streams.SystemClock", Hasty
    )


class Reading:
    """A reader of answers that are given, which ends with the last of them."""

    def __init__(self, *answers: tuple[int, str, str]) -> None:
        self.taken: list[tuple[list[Element], str | None]] = []
        self.asked: list[str | None] = []
        self.states: list[dict[str, Any]] = []
        self.full = False
        left: Iterator[tuple[int, str, str]] = iter(answers)
        done = Event()
        link = StreamReader(FAR, "secret", SystemClock(), self._push)

        def answer(request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
            assert request.headers["Authorization"] == "Bearer secret"
            self.asked.append(request.headers.get("Last-Event-ID"))
            self.states.append(link.state)
            status, kind, body = next(left, (200, "text/event-stream", ""))
            if body == "":
                link.stop()
                done.set()
            return status, {"Content-Type": kind, "Location": "http://near.test/"}, body

        with responses.RequestsMock() as mock:
            mock.add_callback("GET", FAR, answer)
            link.start()
            assert done.wait(SECONDS)
        self.last = link.state

    def _push(self, stream: str, elements: Any, batch: str | None) -> Receipt:
        assert stream == FAR
        if elements[0].triples[0][2] == '"closed"':
            raise EngineClosedError("the server stops")
        if elements[0].triples[0][2] == '"full"' and not self.full:
            self.full = True
            raise RegistrationsError("the disk is full")
        self.taken.append((list(elements), batch))
        return Receipt(len(elements), (), 0, 0)


TRIPLE = ["<urn:a>", "<urn:p>", "<urn:b>"]
EVENTS = "text/event-stream"


@pytest.mark.usefixtures("quick")
def test_a_reader_goes_on_after_what_it_took() -> None:
    gone = 'event: error\ndata: {"error": "STATUS", "status": STATUS}\n\n'
    done = Reading(
        (503, "text/plain", "no"),
        (200, EVENTS, emission(1, added=[TRIPLE]) + emission(2, result=[])[:-3]),
        (200, EVENTS, emission(2, result=[TRIPLE, [*TRIPLE, "<urn:g>"]])),
        (200, EVENTS, gone.replace("STATUS", "503")),
        (200, EVENTS, gone.replace("STATUS", "429")),
        (200, EVENTS, emission(9, removed=[TRIPLE])),
        (410, "application/problem+json", "{}"),
        (200, EVENTS, emission(11, added=[{"a": "<urn:a>"}]) + emission(12, added=[TRIPLE])),
        (302, "text/plain", "elsewhere"),
        (200, "application/json", "{}"),
        (200, EVENTS, "data: [\n\n"),
    )
    assert done.asked == [None, None, "1", "2", "2", None, "9", None, "12", "12", "12", "12"]
    assert [batch for _, batch in done.taken] == ["1", "2", "9", "12"]
    plain, named = done.taken[1][0]
    assert (plain.triples, plain.at) == (named.triples, named.at) == ((tuple(TRIPLE),), 1)
    reasons = [state.get("reason") for state in done.states]
    assert [None if each is None else each.removeprefix(f"{FAR}: ")[:24] for each in reasons] == [
        None, "HTTP 503 Service Unavail", "the connection ended", "the connection ended", "503",
        "429", "the connection ended", "nothing is kept of what ", "the connection ended",
        "HTTP 302 Found", "application/json is not ", "the connection ended",
    ]  # fmt: skip
    assert (done.last["events"], done.last["refused"]) == (6, 2)


@pytest.mark.usefixtures("quick")
def test_a_reader_asks_again_for_what_could_not_be_kept() -> None:
    full = emission(2, added=[[*TRIPLE[:2], '"full"']])
    done = Reading((200, EVENTS, emission(1, added=[TRIPLE]) + full), (200, EVENTS, full))
    assert done.asked == [None, "1", "2"]
    assert [batch for _, batch in done.taken] == ["1", "2"]
    assert done.states[1]["reason"] == "the disk is full"
    assert done.last["refused"] == 0


def test_no_server_makes_a_reader_ask_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[timedelta] = []

    class Noting(SystemClock):
        def wait(self, duration: timedelta, cancelled: Event | None = None) -> bool:
            waits.append(duration)
            return super().wait(timedelta(milliseconds=1), cancelled)

    monkeypatch.setattr(
        "tests.tpf_server.continuous.service.test_remote_streams.SystemClock", Noting
    )
    for stated, least in (("0", 0.5), ("9000", 8)):
        waits.clear()
        Reading((200, EVENTS, f"retry: {stated}\n\n{emission(1, added=[TRIPLE])}"))
        assert waits[0].total_seconds() > least


class Fed:
    """Another server's stream that remembers batches, and answers as it is told for once."""

    def __init__(self, *faults: int | Exception) -> None:
        self.faults = [*faults]
        self.taken: dict[str, list[dict[str, Any]]] = {}
        self.repeated = 0
        self.sizes: list[int] = []

    def answer(self, request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        assert request.headers["Authorization"] == "Bearer secret"
        assert isinstance(request.body, bytes)
        lines = [json.loads(line) for line in request.body.splitlines()]
        batch = request.params["batch"]  # type: ignore[attr-defined]
        fault = self.faults.pop(0) if self.faults else 200
        self.sizes.append(len(lines))
        if fault == 413 and len(lines) > 1:
            self.faults.insert(0, 413)
        if isinstance(fault, int) and fault != 200 and not (fault == 413 and len(lines) == 1):
            return fault, {"Location": "http://near.test/"}, "no"
        self.repeated += batch in self.taken
        self.taken.setdefault(batch, lines)
        if isinstance(fault, Exception):
            # It was taken, and the answer is lost.
            raise fault
        return 200, {}, '{"accepted": 1, "refused": []}'

    @property
    def objects(self) -> list[str]:
        return [each["triples"][0][2] for lines in self.taken.values() for each in lines]


def fed_by(site: Site, fed: Fed, repeated: int) -> None:
    """Push ten elements through a query that feeds the stream, and wait until all are there."""
    wanted = [f'"{at}"' for at in range(10)], repeated
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        mock.add_callback("POST", FAR, fed.answer)
        mock.add_passthru(ROOT)
        site.push(*(element(at, b=f'"{at}"') for at in range(10)))
        site.service.start()
        eventually(lambda: (sorted(fed.objects), fed.repeated), wanted)
        site.delete("queries/made")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "faults",
    [
        (),
        (503, 401, 302, 429),
        (requests.ConnectionError("cut"), requests.ReadTimeout("late"), 500),
        (413,),
    ],
)
def test_a_batch_is_pushed_until_it_is_taken_and_counts_once(faults: tuple[Any, ...]) -> None:
    site, fed = Site(policies={"streams": {"http://far.test": "secret"}}), Fed(*faults)
    assert site.register(MADE, name="made", into=FAR).status_code == 201
    fed_by(site, fed, sum(isinstance(each, Exception) for each in faults))
    assert fed.objects == [f'"{at}"' for at in range(10)]
    # What is too large is halved, and what is refused for another reason is sent again as it is.
    assert (len(fed.taken) > 1) == (faults == (413,))


@pytest.mark.usefixtures("quick")
def test_an_element_that_is_refused_is_left_out_and_said() -> None:
    site = Site(policies={"streams": {"http://far.test": "secret"}})
    site.register(MADE, name="made", into=FAR)

    def answer(request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        assert isinstance(request.body, bytes)
        bad = b'"3"' in request.body.replace(b"\\", b"")
        return (400, {}, "no such predicate") if bad else (200, {}, '{"refused": []}')

    with responses.RequestsMock() as mock:
        mock.add_callback("POST", FAR, answer)
        site.push(*(element(at, b=f'"{at}"') for at in range(4)))
        site.service.start()

        def state() -> tuple[str, int]:
            found = site.service.explain("made")
            return found.get("reason", ""), found["remote_streams"][0]["refused"]

        eventually(state, (f"{FAR}: refused: no such predicate", 1))
        site.service.delete("made")


@pytest.mark.usefixtures("quick")
def test_what_is_not_kept_for_a_server_that_is_away_is_counted() -> None:
    site = Site(policies={"streams": {"http://far.test": "secret"}, "backlog": 4})
    site.register(MADE, name="made", into=FAR)
    hosted = site.service.query("made")
    fed = Fed()
    writer = StreamWriter(FAR, "secret", SystemClock(), hosted, "http://here.test/made")
    writer.resume(hosted.log.last, None)
    site.push(*(element(at, b=f'"{at}"') for at in range(10)))
    with responses.RequestsMock() as mock:
        mock.add_callback("POST", FAR, fed.answer)
        writer.start()
        eventually(lambda: fed.objects, [f'"{at}"' for at in range(6, 10)])
        eventually(lambda: writer.position(), (hosted.log.last, None))
        writer.stop()
    assert writer.state["lost"] == 6


@pytest.mark.usefixtures("quick")
def test_a_batch_that_was_under_way_at_a_stop_is_the_same_one_afterwards() -> None:
    site = Site(policies={"streams": {"http://far.test": "secret"}})
    site.register(MADE, name="made", into=FAR)
    hosted = site.service.query("made")
    site.push(*(element(at, b=f'"{at}"') for at in range(3)))
    fed = Fed(requests.ConnectionError("cut"))
    cut = fed.answer

    def stopping(request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        first.stop()
        return cut(request)

    first, second = (
        StreamWriter(FAR, "secret", SystemClock(), hosted, "http://here.test/made")
        for _ in range(2)
    )
    with responses.RequestsMock() as mock:
        mock.add_callback("POST", FAR, stopping)
        first.start()
        eventually(lambda: len(fed.taken), 1)
        eventually(lambda: (first.position() or (0, 0))[1], hosted.log.last)
        site.push(*(element(at, b=f'"{at}"') for at in range(3, 6)))
        second.resume(*(first.position() or (0, 0)))
        second.start()
        eventually(lambda: (fed.objects, fed.repeated), ([f'"{at}"' for at in range(6)], 1))
        second.stop()
