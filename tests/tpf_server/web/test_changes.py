"""The feed that says which predicates of a dataset change."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from annotations.labels import Expiration, Fact
from tests.support.eventually import eventually
from tests.support.running_server import TOKEN, RunningServer
from tests.support.served import BASE, NOON, Served, quad
from tpf_server.web import change_feed

ON = {"change_followers": 8}


def heard(response: requests.Response) -> Iterator[dict[str, Any]]:
    """The data of events, each with its id checked."""
    number = ""
    for line in response.iter_lines(chunk_size=1):
        text = line.decode()
        if text.startswith("id: "):
            number = text[4:]
        elif text.startswith("data: "):
            data = json.loads(text[6:])
            assert str(data["sequence"]) == number
            yield data


def follow(served: Served, **headers: str) -> requests.Response:
    session = requests.Session()
    url = f"http://127.0.0.1:{served.port}/trains/changes"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return session.get(url, headers=named, stream=True, timeout=60)


def iris(*names: str) -> list[str]:
    return [quad("a", name, "o").predicate[1:-1] for name in names]


def told(served: Served) -> bool:
    page = served.page("trains")
    return any(row.predicate.endswith("#changes>") for row in page.metadata)


def test_nothing_is_told_by_default(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        assert served.get("trains/changes").status_code == 404
        assert not told(served)
    with Served(tmp_path / "static", live=False, settings=ON) as served:
        assert served.get("trains/changes").status_code == 404
        assert not told(served)


def test_who_follows_hears_the_predicates_of_every_batch(tmp_path: Path) -> None:
    label = Expiration(NOON + timedelta(seconds=60))
    with Served(tmp_path, settings=ON) as served:
        assert told(served)
        served.publish((quad("a", "p", "o"), label))
        with follow(served) as following:
            events = heard(following)
            assert following.headers["Content-Type"].startswith("text/event-stream")
            assert following.headers["Cache-Control"] == "no-store"
            assert next(events) == {"sequence": 1, "predicates": []}
            served.publish((quad("a", "q", "o"), label), (quad("b", "r", "o"), label))
            assert next(events) == {"sequence": 2, "predicates": iris("q", "r")}
            assert served.live is not None
            served.live.publish([], NOON, withdrawn=[Fact(quad("a", "p", "o"))])
            assert next(events) == {"sequence": 3, "predicates": iris("p")}
        with follow(served, Last_Event_ID="1") as following:
            assert next(heard(following)) == {"sequence": 3, "predicates": iris("p", "q", "r")}
        with follow(served, Last_Event_ID="3") as following:
            served.publish((quad("c", "q", "o"), label))
            assert next(heard(following)) == {"sequence": 4, "predicates": iris("q")}
        for unknown in ("0", "9"):
            # It is from before anybody followed here, or is of another log.
            with follow(served, Last_Event_ID=unknown) as following:
                assert next(heard(following)) == {"sequence": 4, "predicates": None}


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    with Served(tmp_path, settings=ON) as served:
        for wrong in ("x", "-1", "1" * 19, "1.5"):
            answer = served.get("trains/changes", Last_Event_ID=wrong)
            assert (answer.status_code, repr(wrong) in answer.text) == (400, True)
        assert served.get("trains/changes", accept="text/html").status_code == 406
        # A field that is too long is not read, as elsewhere.
        long = {"Accept": "text/html," * 500}
        assert served.request("HEAD", "trains/changes", headers=long).status_code == 200
        assert served.get("nothing/changes").status_code == 404
        assert served.request("POST", "trains/changes").status_code == 405
        assert served.request("HEAD", "trains/changes").status_code == 200
        assert f"{BASE}{{name}}/changes" in served.get("api-doc").text


def test_too_many_are_told_so_and_a_place_becomes_free(tmp_path: Path) -> None:
    with (
        Served(tmp_path, settings=ON | {"followers_per_address": 1}) as served,
        ExitStack() as all_,
    ):
        first = all_.enter_context(follow(served))
        next(heard(first))
        refused = served.get("trains/changes")
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        feeds = served.app.extensions["tpf_server"].changes
        feeds.close()
        assert list(heard(first)) == []
        assert feeds.slots.wait_until_empty(60)


def test_silence_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "_HEARTBEAT", 0.01)
    with Served(tmp_path, settings=ON) as served, follow(served) as following:
        lines = following.iter_lines(chunk_size=1)
        assert next(line for line in lines if line.startswith(b":")) == b": still here"


def publish(url: str, body: str) -> None:
    answer = requests.post(
        f"{url}data/facts?expiration=2999-01-01T00:00:00Z",
        body.encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/n-triples"},
        timeout=60,
    )
    assert answer.ok, answer.text


def test_batches_of_other_workers_are_told_and_who_follows_hears_the_end(tmp_path: Path) -> None:
    config = "workers = 2\nchange_followers = 2\n[datasets.data]\nlive = true\n"
    with RunningServer(tmp_path, config) as server:
        # New connections go to either worker.
        following = [
            requests.get(f"{server.url}data/changes", stream=True, timeout=60) for _ in range(2)
        ]
        events = [heard(each) for each in following]
        begun = [next(each)["sequence"] for each in events]
        assert begun == [0, 0]
        for number in range(1, 5):
            publish(server.url, f"<urn:a> <urn:p{number}> <urn:o> .")
        for each in events:
            found: list[str] = []
            while len(found) < 4:
                found += next(each)["predicates"]
            assert sorted(found) == [f"urn:p{number}" for number in range(1, 5)]
        server.process.send_signal(signal.SIGTERM)
        for each in events:
            assert list(each) == []
        assert server.process.wait(60) == 0


def test_a_reader_that_stops_reading_loses_its_place(tmp_path: Path) -> None:
    config = "change_followers = 1\nbody_timeout = 1\n[datasets.data]\nlive = true\n"
    with RunningServer(tmp_path, config) as server, socket.socket() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.connect(("127.0.0.1", server.port))
        idle.sendall(b"GET /data/changes HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(10).startswith(b"HTTP/1.1 2")
        over = threading.Event()
        names = [f"<urn:{number}:{'p' * 1500}>" for number in range(8)]

        def talk() -> None:
            for number in range(5_000):
                if over.is_set():
                    return
                publish(server.url, "".join(f"<urn:{number}> {name} <urn:o> .\n" for name in names))

        talking = threading.Thread(target=talk)
        talking.start()
        try:

            def has_room() -> bool:
                with requests.get(f"{server.url}data/changes", stream=True, timeout=60) as answer:
                    return answer.status_code == 200

            eventually(has_room)
        finally:
            over.set()
            talking.join()
