"""The demo, as a user starts it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.support.irail import RECORDING, needs_recording


def _demo(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "commands", "tpf-demo", *arguments]


@pytest.mark.parametrize(
    "data", ["flights", pytest.param(str(RECORDING), marks=needs_recording, id="irail")]
)
def test_additions_and_removals_come_and_it_ends_by_itself(data: str) -> None:
    done = subprocess.run(
        _demo("--seconds", "30", "--data", data), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    updates = [json.loads(line) for line in done.stdout.splitlines()]
    assert updates[0]["added"]
    assert any(update["added"] for update in updates[1:])
    assert any(update["removed"] for update in updates[1:])


def test_the_board_lives_at_a_url_too() -> None:
    with subprocess.Popen(
        _demo(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_interrupts,
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        try:
            said = ""
            while "in a browser: " not in said:
                said = demo.stderr.readline()
                assert demo.poll() is None
            page = said.split()[-1].removesuffix("#example=1")
            examples = requests.get(f"{page}page.json", timeout=30).json()["examples"]
            assert (len(examples), examples[0]["title"]) == (5, "The board")
            shown = json.loads(demo.stdout.readline())
            for example in examples:
                query = {"query": example["query"]}
                headers = {"Accept": "text/event-stream"}
                with requests.get(
                    f"{page}sparql", query, headers=headers, stream=True, timeout=30
                ) as answer:
                    lines = answer.iter_lines(1, decode_unicode=True)
                    data = next(line for line in lines if line.startswith("data: "))
                assert json.loads(data.removeprefix("data: "))["added"], example["title"]
                # What held is known of every instant: nothing, before it began.
                for at in (shown["at"], "2020-01-01T00:00:00Z"):
                    past = requests.get(f"{page}sparql", query | {"at": at}, timeout=60)
                    assert past.status_code == 200, past.text
                assert past.json()["results"]["bindings"] == []
                if example is examples[0]:
                    assert json.loads(data.removeprefix("data: "))["vars"] == shown["vars"]
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate(timeout=60)


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("during", ["loading", "serving", "watching"])
def test_an_interrupt_leaves_nothing_running(tmp_path: Path, during: str) -> None:
    with subprocess.Popen(
        _demo(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that run in the background inherit that interrupts are ignored.
        preexec_fn=_heed_interrupts,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        try:
            if during == "watching":
                assert json.loads(demo.stdout.readline())["added"]
            else:
                while f"tpf-demo: {during}" not in demo.stderr.readline():
                    assert demo.poll() is None
            # As a terminal does it: the signal goes to the whole group.
            os.killpg(demo.pid, signal.SIGINT)
            # Ends only when no process holds the other end of the pipes any more.
            _, err = demo.communicate(timeout=120)
        finally:
            if demo.poll() is None:
                os.killpg(demo.pid, signal.SIGKILL)
    if during == "watching":
        assert demo.returncode == 0, err
    else:
        assert demo.returncode == 130, err
        *warnings, last = err.splitlines()
        assert last == "tpf-demo: interrupted"
        # On a busy machine a worker that is interrupted while it starts may have to be killed.
        assert all("refused to gracefully stop" in each for each in warnings), err
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_recording_is_refused_in_a_line() -> None:
    done = subprocess.run(
        _demo("--data", "no-such-file.zip"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no-such-file.zip" in done.stderr
