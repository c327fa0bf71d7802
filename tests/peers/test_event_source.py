"""The EventSource that browsers and npm have follows what changes in a dataset."""

import json
import subprocess
from pathlib import Path

import requests

from tests.support.peers import EVENT_SOURCE, HERE, NODE, NODE_MODULES
from tests.support.running_server import TOKEN, RunningServer

CONFIG = "change_followers = 4\n[datasets.trains]\nlive = true\n"


def publish(server: RunningServer, number: int) -> None:
    answer = requests.post(
        f"{server.url}trains/facts?expiration=2999-01-01T00:00:00Z",
        data=f'<urn:a> <urn:p{number}> "{number}" .',
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/n-triples"},
        timeout=60,
    )
    assert answer.ok, answer.text


@EVENT_SOURCE.needed
def test_changes_are_followed(tmp_path: Path) -> None:
    program = [NODE.command, str(HERE / "event_source.mjs"), str(NODE_MODULES)]
    with RunningServer(tmp_path, CONFIG) as server:
        command = [*program, f"{server.url}trains/changes", "4"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
            assert follower.stdout is not None
            try:
                first = json.loads(follower.stdout.readline())
                assert first["data"]["predicates"] == []
                told = []
                for number in range(1, 4):
                    publish(server, number)
                    told.append(json.loads(follower.stdout.readline()))
                assert follower.wait(60) == 0
            finally:
                follower.kill()
    assert [each["id"] for each in told] == ["1", "2", "3"]
    assert [each["data"]["predicates"] for each in told] == [[f"urn:p{n}"] for n in range(1, 4)]
