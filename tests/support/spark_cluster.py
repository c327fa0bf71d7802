"""A standalone Spark cluster on this machine whose nodes share only the network.

Each node (a master and some workers) has namespaces of its own: it reads only the system, the
interpreter and this project, writes only its own ``/tmp``, and has an address of its own. A *hub*
holds the bridge between them and the driver. The hub is the first process of a process namespace:
everything in it ends with it, and it ends with the tests.

Without such namespaces nodes are ordinary processes with separate working directories.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from experiments.free_port import free_port
from tests.support.eventually import eventually
from tpf_server.spark.java import JavaNotFoundError, find_java

PROJECT = Path(__file__).resolve().parents[2]
_NODE = Path(__file__).with_name("spark_node.py")
_NETWORK = "10.77.0"
_DEPLOY = "org.apache.spark.deploy"
_SECONDS = 90
# `cat` ends when the tests do, even if they are killed, and everything with it.
_HUB = """
set -e
mount -t tmpfs none /run
ip link set lo up
ip link add bridge type bridge
ip address add {network}.1/24 dev bridge
ip link set bridge up
for node in {nodes}; do
    ip netns add node$node
    ip link add to$node type veth peer name eth0 netns node$node
    ip link set to$node master bridge up
    ip -n node$node link set lo up
    ip -n node$node address add {network}.$node/24 dev eth0
    ip -n node$node link set eth0 up
done
echo ready
exec cat
"""


@dataclass
class SparkCluster:
    """A running cluster.

    Args:
        directory: holds the ``/tmp`` of each node, ``master``, ``worker1`` …
        master_url: the master, for ``--master``.
        host: the address of the driver, and of servers for executors.
        hub: the process in whose network the driver is; ``None``: the nodes see the same files.
    """

    directory: Path
    master_url: str
    host: str
    hub: int | None = None
    _nodes: list[psutil.Process] = field(default_factory=list)

    def command(self, command: Sequence[str | Path]) -> list[str]:
        """Return a command line that runs where the cluster can reach it: at `host`."""
        words = [str(word) for word in command]
        if self.hub is None:
            return words
        return [*_enter(self.hub), "--net", "--", *words]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a small driver with this cluster as its master."""
        return os.environ | {
            "TPF_SPARK_MASTER": self.master_url,
            "TPF_SPARK_HOST": self.host,
            "TPF_SPARK_MEMORY": "512m",
            "TPF_SPARK_EXECUTOR_MEMORY": "512m",
        }

    def executors(self) -> list[psutil.Process]:
        """Return the Java processes that run tasks."""
        found = []
        for node in self._nodes:
            for process in (node, *node.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                        found.append(process)
        return found

    def working_executor(self, job: "subprocess.Popen[str]") -> psutil.Process:
        """Return the first executor that has started a Python worker, as it does for a task."""

        def look() -> psutil.Process | None:
            for executor in self.executors():
                with contextlib.suppress(psutil.Error):
                    if executor.children():
                        return executor
            return None

        return eventually(look, job)


@contextlib.contextmanager
def standalone_cluster(directory: Path) -> Iterator[SparkCluster]:
    """Run a cluster of two workers with a core each."""
    pyspark = pytest.importorskip("pyspark")
    try:
        java = find_java(None, os.environ)
    except JavaNotFoundError as error:
        pytest.skip(str(error))
    home = Path(pyspark.__file__).resolve().parent
    names = ["master", "worker1", "worker2"]
    with contextlib.ExitStack() as stack:
        hub = _hub(stack, len(names))
        kept = (PROJECT, sys.prefix, sys.base_prefix, home, java)
        if hub:
            seen = f"import os, sys; sys.exit(3 * os.path.exists({str(directory)!r}))"
            probe = _on_node(hub, 2, directory / "probe", kept, [sys.executable, "-c", seen])
            (directory / "probe").mkdir()
            tried = subprocess.run(probe, capture_output=True, check=False)
            assert tried.returncode != 3, "a node sees files of this machine"
            hub = None if tried.returncode else hub
        addresses = [f"{_NETWORK}.{n}" if hub else "127.0.0.1" for n in range(2, len(names) + 2)]
        port = 7077 if hub else free_port()
        url = f"spark://{addresses[0]}:{port}"
        cluster = SparkCluster(directory, url, f"{_NETWORK}.1" if hub else "127.0.0.1", hub)
        master = directory / "master" / "log"
        for number, (name, address) in enumerate(zip(names, addresses, strict=True)):
            place = directory / name
            (place / "work").mkdir(parents=True)
            command = [str(home / "bin" / "spark-class")]
            web = ["--host", address, "--webui-port", str(8080 if hub else free_port())]
            if number == 0:
                command += [f"{_DEPLOY}.master.Master", *web, "--port", str(port)]
            else:
                work = "/tmp/work" if hub else str(place / "work")
                command += [
                    f"{_DEPLOY}.worker.Worker", *web, "--cores", "1", "--memory", "700m",
                    "--work-dir", work, url,
                ]  # fmt: skip
            environment = os.environ | {
                "JAVA_HOME": str(java),
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": address,
                "SPARK_LOCAL_HOSTNAME": address,
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_NO_DAEMONIZE": "1",
            }
            if hub:
                # What is of this machine alone means nothing there.
                environment |= {"HOME": "/tmp", "TMPDIR": "/tmp"}
                command = _on_node(hub, number + 2, place, kept, command)
            log = place / "log"
            cluster._nodes.append(_started(stack, command, environment, log))
            if number == 0:
                eventually(lambda: _text(master).count("I have been elected leader"))
        eventually(lambda: _text(master).count("Registering worker") >= 2)
        yield cluster


def _hub(stack: contextlib.ExitStack, nodes: int) -> int | None:
    """Return the process that holds the namespaces, if there can be any."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = _HUB.format(network=_NETWORK, nodes=" ".join(map(str, range(2, nodes + 2))))
    command = ["unshare", *user, "--mount", "--net", "--pid", "--fork", "--kill-child"]
    try:
        process = subprocess.Popen(
            [*command, "--mount-proc", "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
    except OSError:
        return None
    stack.callback(_ended, process)
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        return None
    (inner,) = psutil.Process(process.pid).children()
    return inner.pid


def _on_node(
    hub: int, node: int, place: Path, kept: Sequence[str | Path], command: Sequence[str]
) -> list[str]:
    """Return a command line that runs on a node."""
    return [
        *_enter(hub), "--mount", "--pid", "nsenter", f"--net=/run/netns/node{node}",
        "unshare", "--mount", "--propagation", "private",
        sys.executable, str(_NODE), str(place), *map(str, kept), "--", *command,
    ]  # fmt: skip


def _enter(hub: int) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    return ["nsenter", "--target", str(hub), *user]


def _started(
    stack: contextlib.ExitStack, command: list[str], environment: dict[str, str], log: Path
) -> psutil.Process:
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip
    stack.callback(_ended, process)
    return psutil.Process(process.pid)


def _ended(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """End a process with its children."""
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(process.pid)
        for each in (*started.children(recursive=True), started):
            with contextlib.suppress(psutil.Error):
                each.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait(timeout=_SECONDS)


def _text(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""
