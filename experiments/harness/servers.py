"""The measured servers, each a process of its own on loopback."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from experiments.errors import MeasurementError, UnavailableError
from experiments.free_port import free_port
from experiments.harness import peers
from experiments.harness.processes import (
    LOOPBACK,
    Process,
    await_answer,
    python,
    started,
)

OURS = "ours"
CONSTANT = "constant Flask view"
REFERENCE = "@ldf/server"
"""As figures call the servers."""
TOKEN = "the experiments' own"
_START_SECONDS = 180.0
_CONVERT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; `start_seconds` until its first answer."""

    name: str
    process: Process
    port: int
    start_seconds: float

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/"

    def worker_memory(self) -> int:
        return max(self.process.resident_each().values())


def command(name: str) -> str:
    """Return the path of a command of this environment."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


@contextmanager
def fragment_server(
    folder: Path, config: str = "", *data: Path, base_url: str = ""
) -> Iterator[Server]:
    """Start a new ``tpf-server`` with one worker."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    # What is published again to what another one kept would be taken for a repeated request.
    own = Path(tempfile.mkdtemp(prefix="server-", dir=folder))
    file = own / "server.toml"
    base = f'base_url = "{base_url}"\n' if base_url else ""
    file.write_text(f'publish_token = "{TOKEN}"\n{base}{config}', encoding="utf-8")
    order = [
        command("tpf-server"), *(str(path.resolve()) for path in data),
        "--config", str(file), "--port", str(port), "--data-dir", str(own / "data"),
    ]  # fmt: skip
    with started("tpf-server", order, folder=own) as process:
        seconds = await_answer(process, f"http://{LOOPBACK}:{port}/readyz", _START_SECONDS)
        yield Server(OURS, process, port, seconds)


@contextmanager
def constant_server() -> Iterator[Server]:
    """Start a Flask view of constant bytes on granian with one worker."""
    port = free_port()
    with started(
        "constant view", python("experiments.harness.constant_server", str(port))
    ) as process:
        seconds = await_answer(process, f"http://{LOOPBACK}:{port}/1", _START_SECONDS)
        yield Server(CONSTANT, process, port, seconds)


@dataclass(frozen=True, slots=True)
class ReferenceData:
    """The data of the reference server: ``HDT``, or ``in memory`` without a converter."""

    kind: str
    node: str
    file: Path

    @property
    def name(self) -> str:
        return f"{REFERENCE} ({self.kind})"


def reference_data(triples: Path, folder: Path) -> ReferenceData:
    """Convert N-Triples to HDT, the reference server's fastest form, where possible."""
    peers.package("@ldf/server")
    node = peers.hdt_node()
    converter = peers.hdt_converter()
    if node is None or converter is None:
        if not peers.nodes():
            raise UnavailableError("no Node found")
        return ReferenceData("in memory", peers.nodes()[0][0], triples)
    file = folder / f"{triples.stem}.hdt"
    if not file.exists():
        _run([str(converter), str(triples), str(file)], "the conversion to HDT")
    return ReferenceData("HDT", node, file)


@contextmanager
def reference_server(
    data: ReferenceData, dataset: str, folder: Path, *, base_url: str = ""
) -> Iterator[Server]:
    """Start ``@ldf/server`` with one worker, at ``/{dataset}`` as ours."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    hdt = data.kind == "HDT"
    context = "https://linkedsoftwaredependencies.org/bundles/npm/@ldf/server/^3.0.0/components"
    source = {
        "@id": "urn:ldf-server:data",
        "@type": "HdtDatasource" if hdt else "NTriplesDatasource",
        "datasourceTitle": dataset,
        "description": dataset,
        "datasourcePath": dataset,
        "hdtFile" if hdt else "file": str(data.file),
    }
    config = {
        "@context": f"{context}/context.jsonld",
        "@id": "urn:ldf-server:my",
        "import": "preset-qpf:config-defaults.json",
        "title": "reference",
        "baseURL": base_url or f"http://{LOOPBACK}:{port}/",
        "port": port,
        "workers": 1,
        "dataFactory": {
            "@id": "ldfc:DataFactory#dataFactory",
            "requireName": "n3",
            "requireElement": "DataFactory",
            "requireNoConstructor": True,
        },
        "datasources": [source],
    }
    file = folder / "reference.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    order = [data.node, str(_launcher(folder)), str(file), str(port), "1"]
    with started("@ldf/server", order, folder=folder) as process:
        url = f"http://{LOOPBACK}:{port}/{dataset}"
        seconds = await_answer(process, url, _START_SECONDS)
        yield Server(data.name, process, port, seconds)


def _launcher(folder: Path) -> Path:
    """Keep newer clients' components out: the server loads all packages beside it."""
    modules = folder / "node_modules"
    modules.mkdir(exist_ok=True)
    for name in ("@ldf", "n3"):
        link = modules / name
        if not link.exists():
            link.symlink_to(peers.node_modules() / name)
    (folder / "package.json").write_text('{"name": "reference", "version": "1.0.0"}')
    core = json.dumps(str(peers.package("@ldf/core")))
    launcher = folder / "launch.cjs"
    launcher.write_text(f"require({core}).runCli(__dirname + '/');\n", encoding="utf-8")
    return launcher


def _run(order: Sequence[str], what: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603
            order, capture_output=True, timeout=_CONVERT_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MeasurementError(f"{what} failed: {error}") from error
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise MeasurementError(f"{what} failed with status {done.returncode}: {reason}")


_CACHE_SECONDS = 30.0
_MOST = 2**16
_DOCUMENTED = Path(__file__).parents[2] / "docs/nginx.conf"
_CONFIGURATION = """\
{user}daemon off;
worker_processes 1;
worker_rlimit_nofile {descriptors};
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections {descriptors}; }}
http {{
    access_log off;
{temporary}
    include {folder}/site.conf;
}}
"""


@contextmanager
def http_cache(server_port: int, port: int, folder: Path) -> Iterator[Process]:
    """Start a caching nginx with one worker in front of a server."""
    program = peers.nginx()
    folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="nginx-", dir=folder))
    (folder / "site.conf").write_text(_site(server_port, port, folder), encoding="utf-8")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = _CONFIGURATION.format(
        # The folder may be readable for its owner only.
        user="user root;\n" if os.geteuid() == 0 else "",
        folder=folder,
        # Each client that stays connected takes one, and each page that is fetched another.
        descriptors=_MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST),
        temporary="\n".join(f"    {kind}_temp_path {folder}/{kind};" for kind in kinds),
    )
    file = folder / "nginx.conf"
    file.write_text(text, encoding="utf-8")
    order = [program, "-p", str(folder), "-c", str(file), "-e", "stderr"]
    with started("nginx", order, folder=folder) as process:
        await_answer(process, f"http://{LOOPBACK}:{port}/readyz", _CACHE_SECONDS)
        yield process


def _site(server_port: int, port: int, folder: Path) -> str:
    try:
        site = _DOCUMENTED.read_text(encoding="utf-8")
    except OSError as error:
        raise UnavailableError(
            f"the documented configuration of nginx is missing: {error}"
        ) from error
    for documented, actual in {
        "/var/cache/nginx/fragments": f"{folder}/cache",
        "127.0.0.1:3000": f"{LOOPBACK}:{server_port}",
        "listen 80;": f"listen {LOOPBACK}:{port};",
    }.items():
        if documented not in site:
            raise UnavailableError(f"docs/nginx.conf does not say {documented!r} any more")
        site = site.replace(documented, actual)
    return site
