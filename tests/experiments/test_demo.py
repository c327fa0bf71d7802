"""The demo, as a user starts it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from urllib.parse import urljoin

import requests

from annotations.instants import parse_instant
from tests.loaders.recordings import entry, write_directory
from tpf_client import Client


def _demo(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tpf_client.commands", "tpf-demo", *arguments]


def pairs(values: list[bool]) -> list[tuple[bool, bool]]:
    return list(pairwise(values))


def test_a_short_recording_begins_again_when_the_board_is_empty(tmp_path: Path) -> None:
    # Four polls, a minute apart: a second each. The last one is that nothing leaves any more.
    boards = [[entry("a", "60")], [entry("a", "120"), entry("b")], [entry("b", "120")], []]
    polls = {1417808000000 + 60_000 * n: board for n, board in enumerate(boards)}
    data = write_directory(tmp_path / "day", polls)
    with subprocess.Popen(
        _demo("--seconds", "200", "--data", str(data)), stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        rows, shown = 0, [False]
        for update in map(json.loads, demo.stdout):
            rows += len(update["added"]) - len(update["removed"])
            shown.append(rows > 0)
            if pairs(shown).count((False, True)) == 2:
                break
        demo.terminate()
        demo.communicate(timeout=60)
    assert pairs(shown).count((False, True)) == 2, shown
    # It ends by itself, too.
    done = subprocess.run(
        _demo("--seconds", "1", "--data", str(data)), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


def test_flights_come_and_go_on_the_page_too_until_an_interrupt(tmp_path: Path) -> None:
    with _interrupted(tmp_path) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        said = ""
        while "in a browser: " not in said:
            said = demo.stderr.readline()
            assert demo.poll() is None
        page = said.split()[-1].removesuffix("/query/#example=1")
        told = requests.get(urljoin(page, "/query/page.json"), timeout=30).json()
        examples = told["examples"]
        assert (len(examples), examples[0]["title"]) == (5, "The board")
        # At the first instant, nothing may hold.
        shown = next(update for update in map(json.loads, demo.stdout) if update["added"])
        with Client(page) as client:
            for example in examples:
                updates = client.stream(example["query"])
                assert any(each.added for each in islice(updates, 20)), example["title"]
                updates.close()
                # What held is known of every instant: nothing, before it began.
                for at in (parse_instant(shown["at"]), datetime(2020, 1, 1, tzinfo=UTC)):
                    past = list(client.select(example["query"], at=at))
                assert past == []
        added = removed = False
        while not (added and removed):
            update = json.loads(demo.stdout.readline())
            added, removed = added or bool(update["added"]), removed or bool(update["removed"])
        # As a terminal does it: the signal goes to the whole group.
        os.killpg(demo.pid, signal.SIGINT)
        # Ends only when no process holds the other end of the pipes any more.
        _, err = demo.communicate(timeout=120)
        assert demo.returncode == 0, err
    assert not list(tmp_path.iterdir())


@contextmanager
def _interrupted(folder: Path) -> "Iterator[subprocess.Popen[str]]":
    """A demo in a process group of its own, with its files in the folder."""
    with subprocess.Popen(
        _demo(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # Tests that run in the background inherit that interrupts are ignored.
        preexec_fn=_heed_interrupts, env=os.environ | {"TMPDIR": str(folder)},
    ) as demo:  # fmt: skip
        try:
            yield demo
        finally:
            if demo.poll() is None:
                os.killpg(demo.pid, signal.SIGKILL)


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_while_it_loads_leaves_nothing_running(tmp_path: Path) -> None:
    with _interrupted(tmp_path) as demo:
        assert demo.stderr is not None
        while "tpf-demo: loading" not in demo.stderr.readline():
            assert demo.poll() is None
        os.killpg(demo.pid, signal.SIGINT)
        _, err = demo.communicate(timeout=120)
        warnings = err.splitlines()
        assert demo.returncode == 130, err
        assert warnings.pop() == "tpf-demo: interrupted"
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
