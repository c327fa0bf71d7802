"""nginx as an HTTP cache in front of the fragment server, configured as ``docs/nginx.conf`` is."""

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.errors import UnavailableError
from experiments.harness import peers
from experiments.harness.processes import LOOPBACK, Process, await_answer, started

_START_SECONDS = 30.0
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
    """An nginx with one worker that caches what a server answers, in a new folder in this one.

    Raises:
        UnavailableError: there is no nginx, or its documented configuration is not here.
    """
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
        await_answer(process, f"http://{LOOPBACK}:{port}/readyz", _START_SECONDS)
        yield process


def _site(server_port: int, port: int, folder: Path) -> str:
    """The documented configuration, with other ports and folders."""
    try:
        site = _DOCUMENTED.read_text(encoding="utf-8")
    except OSError as error:
        raise UnavailableError(
            f"the documented configuration of nginx is missing: {error}"
        ) from error
    for documented, here in {
        "/var/cache/nginx/fragments": f"{folder}/cache",
        "127.0.0.1:3000": f"{LOOPBACK}:{server_port}",
        "listen 80;": f"listen {LOOPBACK}:{port};",
    }.items():
        if documented not in site:
            raise UnavailableError(f"docs/nginx.conf does not say {documented!r} any more")
        site = site.replace(documented, here)
    return site
