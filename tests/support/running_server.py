"""The real ``tpf-server`` as a process of its own, on a loopback port."""

import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import requests

from annotations.instants import format_instant
from annotations.labels import Expiration, Fact, Label
from annotations.terms import Quad
from tests.support.peers import PROJECT

TOKEN = "open sesame"
_COMMAND = [sys.executable, "-c", "from tpf_server.cli import main; main()"]
_READY = re.compile(r"tpf-server: (http://\S+/) \(datasets: .*\)\n")
_START_SECONDS = 60


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RunningServer:
    """A server process; a context manager that ends it.

    Args:
        folder: where it runs; indexes and logs of live facts are made in it.
        config: the text of its TOML file.
        arguments: further arguments of the command.
        port: where it listens; a free one by default.
    """

    def __init__(self, folder: Path, config: str, *arguments: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.origin = f"http://127.0.0.1:{self.port}/"
        (folder / "server.toml").write_text(f'publish_token = "{TOKEN}"\n{config}')
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TPF_SERVER_")}
        self.process = subprocess.Popen(
            [*_COMMAND, "--config", "server.toml", "--port", str(self.port), *arguments],
            cwd=folder,
            env=environment | {"PYTHONPATH": str(PROJECT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = self._ready()

    def _ready(self) -> str:
        """The URL that the server says that it is known under, once it answers."""
        output = self.process.stdout
        assert output is not None
        ready = select.select([output], [], [], _START_SECONDS)[0]
        found = _READY.fullmatch(output.readline()) if ready else None
        if found is None:
            self.close()
            raise AssertionError("the server never became ready")
        return found[1]

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()

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
