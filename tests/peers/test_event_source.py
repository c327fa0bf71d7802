"""The EventSource of npm, and ldes-client, follow what changes in a dataset.

ldes-client is the reference client of Linked Data Event Streams.
"""

import json
import subprocess
from collections.abc import Iterator

import pytest
import requests

from annotations.namespaces import ACTIVITY, DCTERMS, RDF
from tests.support.peers import EVENT_SOURCE, HERE, LDES_CLIENT, NODE, NODE_MODULES
from tests.support.running_server import TOKEN, RunningServer

CONFIG = """
change_followers = 4
[datasets.trains]
live = true
[datasets.history]
live = true
event_stream = 3600.0
"""
LABEL = "?expiration=2999-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("server"), CONFIG) as running:
        yield running


def send(server: RunningServer, method: str, facts: str, body: str) -> None:
    answer = requests.request(
        method,
        server.url + facts,
        data=body.encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/n-triples"},
        timeout=60,
    )
    assert answer.ok, answer.text


@EVENT_SOURCE.needed
def test_changes_are_followed(server: RunningServer) -> None:
    program = [NODE.command, str(HERE / "event_source.mjs"), str(NODE_MODULES)]
    command = [*program, f"{server.url}trains/changes", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        try:
            first = json.loads(follower.stdout.readline())
            assert first["data"]["predicates"] == []
            told = []
            for number in range(1, 4):
                send(
                    server, "POST", f"trains/facts{LABEL}", f'<urn:a> <urn:p{number}> "{number}" .'
                )
                told.append(json.loads(follower.stdout.readline()))
            assert follower.wait(60) == 0
        finally:
            follower.kill()
    assert [each["id"] for each in told] == ["1", "2", "3"]
    assert [each["data"]["predicates"] for each in told] == [[f"urn:p{n}"] for n in range(1, 4)]


@LDES_CLIENT.needed
def test_every_member_arrives_in_order(server: RunningServer) -> None:
    # More than a leaf has batches, and one with more members than a page.
    for number in range(70):
        send(server, "POST", f"history/facts{LABEL}", f'<urn:a> <urn:delay> "{number}" .')
    many = "".join(f'<urn:{number}> <urn:p> "x" .\n' for number in range(1100))
    send(server, "POST", f"history/facts{LABEL}", many)
    send(server, "DELETE", "history/facts", '<urn:a> <urn:delay> "69" .')
    url = f"{server.url}history/ldes"
    found = subprocess.run(
        [NODE.command, str(HERE / "ldes_client.mjs"), str(NODE_MODULES), url],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    members = [json.loads(line) for line in found.stdout.splitlines()]
    # Each but the first replaces the one before it, whose quad is another one.
    assert len(members) == 70 + 69 + 1100 + 1
    assert len({each["id"] for each in members}) == len(members)
    assert [each["timestamp"] for each in members] == sorted(each["timestamp"] for each in members)
    said = {each["isVersionOf"]: dict(part[1:] for part in each["quads"]) for each in members}
    gone = [
        each["isVersionOf"]
        for each in members
        if any(part[1:] == [f"{RDF}type", f"{ACTIVITY}Delete"] for part in each["quads"])
    ]
    assert len(gone) == len(set(gone)) == 70
    stand = {said[name][f"{RDF}object"] for name in said.keys() - set(gone)}
    assert stand == {"x"}
    assert all(f"{DCTERMS}created" in each for each in said.values())
