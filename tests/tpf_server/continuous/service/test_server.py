"""The real server: its clock closes windows, and followers hear when it stops."""

import json
import signal
import subprocess
from pathlib import Path

import requests

from experiments.free_port import free_port
from tests.support.continuous_site import ContinuousClient
from tests.support.eventually import eventually
from tests.support.running_server import COMMAND, TOKEN, RunningServer, own_environment

AUTH = {"Authorization": f"Bearer {TOKEN}"}
QUERY = """REGISTER QUERY count COMPUTED EVERY 100ms AS
SELECT (COUNT(*) AS ?n) FROM STREAM <s> [RANGE 1s STEP 100ms] { ?a <urn:p> ?b }"""

JOINED = "SELECT ?b { STREAM <s> [ALL] { ?x <urn:sees> ?a } ?a <urn:p> ?b }"


def test_the_clock_answers_and_a_follower_hears_the_end(tmp_path: Path) -> None:
    (tmp_path / "data.nt").write_text("<urn:a> <urn:p> <urn:b> .\n")
    config = 'continuous = true\nfollowers = 2\n[datasets.data]\nsource = "data.nt"\n'
    with RunningServer(tmp_path, config) as server:
        client = ContinuousClient(server.origin[:-1], requests.Session(), AUTH)
        made = client.register(QUERY)
        assert made.headers["Location"] == f"{server.url}queries/count"
        followers = [client.results("count", stream=True) for _ in range(3)]
        assert [each.status_code for each in followers] == [200, 200, 503]
        # Nobody has pushed anything.
        lines = [each.iter_lines() for each in followers[:2]]
        assert [json.loads(next(each))["sequence"] for each in lines] == [1, 1]
        client.register(JOINED, name="joined", semantics="paper")
        seen = "<urn:x> <urn:sees> <urn:a> .\n<urn:x> <urn:sees> <urn:c> ."
        client.post("streams/s", seen, {"Content-Type": "application/n-triples"})
        # A reload changes what is published, and leaves queries and who follows them alone.
        (tmp_path / "data.nt").write_text("<urn:a> <urn:p> <urn:b> .\n<urn:c> <urn:p> <urn:d> .\n")
        (tmp_path / "server.toml").write_text(f'title = "New"\n{config}')
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "New" in requests.get(f"{server.url}data.html", timeout=30).text)
        assert [json.loads(next(each))["sequence"] for each in lines] == [2, 2]
        assert client.get("queries/count")["state"] == "running"
        # They see the static data of now, and nothing else is new to them.
        added = [each["added"] for each in client.emissions("joined")]
        assert added == [[{"b": "<urn:b>"}], [{"b": "<urn:d>"}]]
        client.session.close()
        server.process.send_signal(signal.SIGTERM)
        for each in lines:
            *_, last = each
            assert json.loads(last) == {"error": "the server stops", "status": 503}
        assert server.process.wait(60) == 0


def test_a_server_that_cannot_begin_its_queries_again_says_so_in_a_line(tmp_path: Path) -> None:
    config = "continuous = true\nkeep_queries = true\n[datasets.trains]\nlive = true\n"
    (tmp_path / "server.toml").write_text(config)
    kept = tmp_path / ".tpf-server" / "continuous.json"
    kept.parent.mkdir()
    kept.write_text("{")
    done = subprocess.run(
        [*COMMAND, "--config", "server.toml", "--port", str(free_port())],
        cwd=tmp_path,
        env=own_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "a worker cannot start: .tpf-server/continuous.json: Expecting property" in done.stderr
    assert done.stderr.count("a worker cannot start") == 1
    assert "Traceback" not in done.stderr
    assert kept.read_text() == "{"
