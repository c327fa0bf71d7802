"""ASK, CONSTRUCT and DESCRIBE kept up to date: a boolean that turns, triples that come and go."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rdflib import Literal
from typer.testing import CliRunner

import tpf_client.app.cli
from annotations.namespaces import XSD_INTEGER
from annotations.terms import Quad, iri, literal
from tests.support.live_server import START, LiveServer
from tpf_client import Client, Update
from tpf_client.stream import Stream

EX = "http://example.org/"
SECOND = timedelta(seconds=1)
ASK = f"ASK {{ ?train <{EX}delay> ?delay FILTER(?delay > 1) }}"
CONSTRUCT = (
    f"CONSTRUCT {{ ?train a <{EX}Late> . <{EX}board> <{EX}shows> [ <{EX}of> ?train ] }} "
    f"WHERE {{ ?train <{EX}delay> ?delay FILTER(?delay > 0) }}"
)
DESCRIBE = f"DESCRIBE <{EX}a>"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    """Delays of two trains: (a: 1, b: 0), at 10 s (a: 2, b: 1), at 20 s (a: 2), then none."""
    rounds = [{"a": 1, "b": 0}, {"a": 2, "b": 1}, {"a": 2}]

    def delays(number: int) -> list[Quad]:
        trains = rounds[number] if number < len(rounds) else {}
        return [
            Quad(iri(EX + name), iri(f"{EX}delay"), literal(str(n), datatype=XSD_INTEGER))
            for name, n in trains.items()
        ]

    with LiveServer(tmp_path) as server:
        server.publish_rounds(10 * SECOND, delays)
        yield server


def updates(server: LiveServer, query: str) -> list[tuple[float, Update]]:
    seen: list[tuple[float, Update]] = []
    with server.client() as client:
        client.stream(query).start(
            lambda update: seen.append(((update.at - START) / SECOND, update))
        )
        client.scheduler.run(until=START + 35 * SECOND)
    return seen


def test_a_boolean_turns(server: LiveServer) -> None:
    seen = updates(server, ASK)
    assert [(at, update.boolean) for at, update in seen] == [(0, False), (10, True), (30, False)]
    turned = seen[1][1].to_json()
    assert (turned["boolean"], turned["vars"], turned["added"]) == (True, [], [{}])
    with pytest.raises(ValueError, match="ASK"):
        seen[0][1].graph()


def test_a_description_follows_its_facts(server: LiveServer) -> None:
    seen = updates(server, DESCRIBE)
    assert [at for at, _ in seen] == [0, 10, 30]
    (changed,) = seen[1][1].added
    (before,) = seen[1][1].removed
    assert (changed["object"], before["object"]) == (Literal(2), Literal(1))
    assert len(seen[-1][1].graph()) == 0


@pytest.mark.parametrize(
    ("query", "options", "expected"),
    [
        (f"SELECT ?d {{ <{EX}a> <{EX}delay> ?d }}", [], {"vars": [["d"]] * 3}),
        (ASK, [], {"boolean": [False, True, False]}),
        (CONSTRUCT, ["--format", "ndjson"], {"vars": [["subject", "predicate", "object"]] * 4}),
        (DESCRIBE, [], {"vars": [["subject", "predicate", "object"]] * 3}),
    ],
)
def test_the_command_watches_them(
    server: LiveServer,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    options: list[str],
    expected: dict[str, Any],
) -> None:
    class Ending(Client):
        def __init__(self, *urls: str, **_: Any) -> None:
            super().__init__(*urls, session=server.session(), clock=server.clock, parallelism=0)

        def stream(self, text: str, *given: Any, **options: Any) -> Stream:
            return super().stream(text, *given, **options | {"until": START + 35 * SECOND})

    monkeypatch.setattr(tpf_client.app.cli, "Client", Ending)
    result = CliRunner().invoke(
        tpf_client.app.cli.app, [server.url, "--watch", "-q", query, *options]
    )
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert {name: [each[name] for each in lines] for name in expected} == expected
