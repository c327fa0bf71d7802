"""``tpf-load gtfs-rt`` from files and URLs, to files and a server."""

import gzip
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pyoxigraph as ox
import pytest

from annotations.clock import SystemClock
from annotations.labels import Interval
from annotations.methods import method_named
from loaders import fetching
from loaders.dynamic import naming_of
from loaders.fetching import MAX_MESSAGE
from tests.loaders.facts_server import FactsServer, listening
from tests.loaders.sources.test_gtfs import write
from tests.loaders.sources.test_gtfs_rt import AT, add_trip, new_message, record
from tests.loaders.test_cli import run
from tests.support.oracle import quad_of

DELAY = "<http://example.org/train#delay>"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    return write(tmp_path / "feed")


def test_recorded_messages_as_facts_and_as_a_stream(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, feed: Path
) -> None:
    messages = record(tmp_path / "rt", {0: 0, 1: 60, 5: 60})
    facts, streams = tmp_path / "facts.nq", tmp_path / "streams"
    arguments = ["gtfs-rt", messages, "--schedule", feed, "--facts", facts, "--streams", streams]
    arguments += ["--dataset", "http://h/bus", "--base", "http://agency.example/"]
    assert run("load", *arguments) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"4 facts, annotated by named-graph, in {facts}",
        f"6 triples of streams in {streams}",
    ]
    method = method_named("named-graph")
    quads = [quad_of(quad) for quad in ox.parse(facts.read_bytes(), ox.RdfFormat.N_QUADS)]
    found = {
        (fact.quad.subject, fact.quad.object.partition("^")[0], fact.label)
        for fact in method.decode(quads, naming_of("http://h/bus"))
    }
    end = AT + 5.5 * MINUTE
    assert found == {
        (f"<http://agency.example/departures/20260105/day/{stop}>", *said)
        for stop in (10, 20)
        for said in (('"0"', Interval(AT, AT + MINUTE)), ('"60"', Interval(AT + MINUTE, end)))
    }
    lines = [line.split("\t") for line in (streams / "gtfs-rt.tsv").read_text().splitlines()]
    first = int(AT.timestamp() * 1000)
    assert [int(line[0]) - first for line in lines] == [0, 0, 60_000, 60_000, 300_000, 300_000]
    assert {line[2] for line in lines} == {DELAY}


def test_a_url_is_polled_and_told_to_a_server(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, feed: Path
) -> None:
    server = FactsServer(SystemClock())
    polls = 0

    def both(environ: dict[str, Any], start_response: Any) -> Any:
        nonlocal polls
        if environ["REQUEST_METHOD"] == "POST":
            return server(environ, start_response)
        polls += 1
        start_response("503 Service Unavailable" if polls == 2 else "200 OK", [])
        message = new_message(datetime.now(UTC))
        add_trip(message, start_date="20260105").delay = polls
        return [message.SerializeToString()]

    with listening(both) as origin:
        arguments = ["gtfs-rt", f"{origin}rt.pb", "--schedule", feed, "--push", f"{origin}bus"]
        arguments += ["--token", "secret", "--period", "0.01", "--polls", "3"]
        assert run("load", *arguments, "--label", "interval") == 0
        failed, summary = capsys.readouterr().err.splitlines()
        assert failed.startswith(f"tpf-load: a poll failed: {origin}rt.pb: HTTP 503")
        assert summary == "4 facts in 2 batches"
        assert [posted.lines[0].split('"')[1] for posted in server.accepted] == ["1", "3"]
        assert all(posted.label.keys() == {"initial", "final"} for posted in server.accepted)
        # One poll into a file.
        facts = tmp_path / "facts.nq"
        arguments = ["gtfs-rt", f"{origin}rt.pb", "--schedule", feed, "--facts", facts, "--quiet"]
        assert run("load", *arguments, "--polls", "1") == 0
        assert '"4"' in facts.read_text()
        # A message that is in a file is told as it is.
        message = new_message(datetime.now(UTC))
        add_trip(message, start_date="20260105").delay = 9
        (tmp_path / "now.pb").write_bytes(message.SerializeToString())
        arguments = ["gtfs-rt", tmp_path / "now.pb", "--schedule", feed, "--push", f"{origin}bus"]
        assert run("load", *arguments, "--token", "secret", "--period", "3600") == 0
        assert [line.split('"')[1] for line in server.accepted[-1].lines] == ["9", "9"]
        wanted = datetime.fromtimestamp(message.header.timestamp, UTC) + 60 * MINUTE
        assert server.accepted[-1].label == {"expiration": wanted}
        # What has ceased to hold is not for a server that speaks of the present.
        old = record(tmp_path / "old", {0: 5})
        capsys.readouterr()
        arguments = ["gtfs-rt", old, "--schedule", feed, "--push", f"{origin}bus"]
        assert run("load", *arguments, "--token", "secret") == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("tpf-load: ")
        assert "refused a batch: 400" in line


def test_where_every_poll_fails_so_does_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, feed: Path
) -> None:
    bomb = gzip.compress(b"\0" * (MAX_MESSAGE + 1))
    far = new_message(datetime.now(UTC))
    far.header.timestamp = 2**64 - 1

    def drip() -> Iterator[bytes]:
        while not released.wait(0.01):
            yield b"\x0a"

    released = Event()
    answers: dict[str, tuple[list[tuple[str, str]], Any]] = {
        "/bomb": ([("Content-Encoding", "gzip")], [bomb]),
        "/damaged": ([("Content-Encoding", "gzip")], [b"no gzip"]),
        "/far": ([], [far.SerializeToString()]),
        "/page": ([], [b"<html>"]),
        "/drip": ([], None),
    }

    def hostile(environ: dict[str, Any], start_response: Any) -> Any:
        headers, body = answers[environ["PATH_INFO"]]
        start_response("200 OK", headers)
        return drip() if body is None else body

    reasons = {
        "bomb": "more than 64 MB",
        "damaged": "damaged",
        "far": "no instant",
        "page": "not a GTFS Realtime message",
        "drip": "answer in",  # none, or no complete one
    }
    with listening(hostile) as origin, pytest.MonkeyPatch.context() as patch:
        for name, reason in reasons.items():
            patch.setattr(fetching, "_SECONDS", 0.2 if name == "drip" else 60.0)
            arguments = ["gtfs-rt", origin + name, "--schedule", feed, "--polls", "2"]
            arguments += ["--period", "0.01", "--facts", tmp_path / "facts.nq"]
            assert run("load", *arguments) == 1
            *failed, last = capsys.readouterr().err.splitlines()
            assert len(failed) == 2
            assert all(reason in line for line in failed), failed
            assert last == f"tpf-load: {origin}{name}: every poll failed"
        released.set()
    arguments[1] = "http://127.0.0.1:9/rt"
    assert run("load", *arguments) == 1
    assert "connection refused" in capsys.readouterr().err
