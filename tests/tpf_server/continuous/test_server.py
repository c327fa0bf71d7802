"""The real server: its clock closes windows, and followers hear when it stops."""

import json
import signal
import time
from pathlib import Path

import requests

from tests.support.running_server import TOKEN, RunningServer

AUTH = {"Authorization": f"Bearer {TOKEN}"}
QUERY = """REGISTER QUERY count COMPUTED EVERY 100ms AS
SELECT (COUNT(*) AS ?n) FROM STREAM <s> [RANGE 1s STEP 100ms] { ?a <urn:p> ?b }"""


def test_the_clock_answers_and_a_follower_hears_the_end(tmp_path: Path) -> None:
    (tmp_path / "data.nt").write_text("<urn:a> <urn:p> <urn:b> .\n")
    config = 'continuous = true\nfollowers = 2\n[datasets.data]\nsource = "data.nt"\n'
    with RunningServer(tmp_path, config) as server:
        made = requests.post(f"{server.url}queries", QUERY.encode(), headers=AUTH, timeout=30)
        assert made.headers["Location"] == f"{server.url}queries/count"
        followers = [
            requests.get(
                f"{made.headers['Location']}/results",
                headers={"Accept": "application/x-ndjson"},
                stream=True,
                timeout=60,
            )
            for _ in range(3)
        ]
        assert [each.status_code for each in followers] == [200, 200, 503]
        # Nobody has pushed anything.
        lines = [each.iter_lines() for each in followers[:2]]
        assert [json.loads(next(each))["id"] for each in lines] == [1, 1]
        # A reload changes what is published, and leaves queries and who follows them alone.
        (tmp_path / "server.toml").write_text(f'title = "New"\n{config}')
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while "New" not in requests.get(f"{server.url}data.html", timeout=30).text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [json.loads(next(each))["id"] for each in lines] == [2, 2]
        assert requests.get(made.headers["Location"], timeout=30).status_code == 200
        server.process.send_signal(signal.SIGTERM)
        for each in lines:
            *_, last = each
            assert json.loads(last) == {"error": "the server stops"}
        assert server.process.wait(60) == 0
