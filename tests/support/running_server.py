"""The real ``tpf-server`` as a process of its own, on a loopback port."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import requests

from annotations.instants import format_instant
from annotations.labels import Expiration, Fact, Label
from annotations.terms import Quad
from experiments.free_port import free_port
from tests.support.peers import PROJECT

TOKEN = "open sesame"
COMMAND = [sys.executable, "-m", "tpf_client.commands", "tpf-server"]
_READY = re.compile(r"tpf-server: (http://\S+/) \(datasets: .*\)\n")
_START_SECONDS = 240
STOP_SECONDS = 90
"""More than the server gives its workers, whom a busy machine may keep from stopping."""


def own_environment() -> dict[str, str]:
    """Return the environment of a server: nothing of this one's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TPF_SERVER_")}
    return kept | {"PYTHONPATH": str(PROJECT)}


def workers_of(server: int) -> list[psutil.Process]:
    """Return the running workers of a server process, without those about to end."""
    found = []
    for child in psutil.Process(server).children():
        # One that has ended has no command any more.
        with suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


def announced_url(server: "subprocess.Popen[str]") -> str:
    """Return the URL that the server prints once it answers; pass other lines on."""
    found: list[str] = []
    answers = threading.Event()

    def listen() -> None:
        assert server.stderr is not None
        with server.stderr:
            for line in server.stderr:
                if ready := _READY.fullmatch(line):
                    found.append(ready[1])
                    answers.set()
                else:
                    sys.stderr.write(line)
        answers.set()

    threading.Thread(target=listen, daemon=True).start()
    answers.wait(_START_SECONDS)
    assert found, "the server never became ready"
    return found[0]


class RunningServer:
    """A server process; a context manager that ends it.

    Args:
        folder: its working directory.
        config: the text of its TOML file.
        arguments: further arguments of the command.
        port: where it listens; a free one by default.
        within: turns the command line into one that runs elsewhere.
    """

    def __init__(
        self,
        folder: Path,
        config: str,
        *arguments: str,
        port: int | None = None,
        within: Callable[[list[str]], list[str]] = list,
    ) -> None:
        self.port = port or free_port()
        self.origin = f"http://127.0.0.1:{self.port}/"
        (folder / "server.toml").write_text(f'publish_token = "{TOKEN}"\n{config}')
        self.process = subprocess.Popen(
            within([*COMMAND, "--config", "server.toml", "--port", str(self.port), *arguments]),
            cwd=folder,
            env=own_environment(),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self.url = announced_url(self.process)
        except AssertionError:
            self.close()
            raise

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(STOP_SECONDS)

    def publish(self, dataset: str, quads: Iterable[Quad], label: Label) -> None:
        """Publish facts with one label, over HTTP."""
        if isinstance(label, Expiration):
            query = {"expiration": format_instant(label.end)}
        else:
            query = {"initial": format_instant(label.start), "final": format_instant(label.end)}
        response = requests.post(
            f"{self.origin}{dataset}/facts",
            params=query,
            data=n_quads(quads).encode(),
            headers={"Content-Type": "application/n-quads", "Authorization": f"Bearer {TOKEN}"},
            timeout=30,
        )
        assert response.status_code == 201, response.text

    def publish_facts(self, dataset: str, facts: Iterable[Fact]) -> None:
        """Publish labelled facts, a batch per label."""
        batches: dict[Label, list[Quad]] = {}
        for fact in facts:
            assert fact.label is not None
            batches.setdefault(fact.label, []).append(fact.quad)
        for label, quads in batches.items():
            self.publish(dataset, quads, label)


def n_quads(quads: Iterable[Quad]) -> str:
    """The quads as N-Quads."""
    return "".join(" ".join(term for term in quad if term) + " .\n" for quad in quads)
