"""ldes-client, the reference client of Linked Data Event Streams, reads ours."""

import json
import subprocess
from pathlib import Path

import requests

from annotations.namespaces import ACTIVITY, DCTERMS, RDF
from tests.support.peers import HERE, LDES_CLIENT, NODE, NODE_MODULES
from tests.support.running_server import TOKEN, RunningServer

CONFIG = "[datasets.trains]\nlive = true\nevent_stream = 3600.0\n"


def send(server: RunningServer, method: str, body: str, query: str = "") -> None:
    answer = requests.request(
        method,
        f"{server.url}trains/facts{query}",
        data=body.encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/n-triples"},
        timeout=60,
    )
    assert answer.ok, answer.text


@LDES_CLIENT.needed
def test_every_member_arrives_in_order(tmp_path: Path) -> None:
    label = "?expiration=2999-01-01T00:00:00Z"
    with RunningServer(tmp_path, CONFIG) as server:
        # More than a leaf has batches, and one with more members than a page.
        for number in range(70):
            send(server, "POST", f'<urn:a> <urn:delay> "{number}" .', label)
        many = "".join(f'<urn:{number}> <urn:p> "x" .\n' for number in range(1100))
        send(server, "POST", many, label)
        send(server, "DELETE", '<urn:a> <urn:delay> "69" .')
        url = f"{server.url}trains/ldes"
        found = subprocess.run(
            [NODE.command, str(HERE / "ldes_client.mjs"), str(NODE_MODULES), url],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
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
