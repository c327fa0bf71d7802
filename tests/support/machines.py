"""Several servers behind one nginx, as in ``docs/operations.md``."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from experiments.free_port import free_port
from tests.support.eventually import eventually, listens
from tests.support.peers import NGINX, PROJECT
from tests.support.postgres import PostgresServer
from tests.support.running_server import RunningServer
from tests.support.stores import CREATED
from tpf_server.store.static.indexing import index_files

_CHAPTER = (PROJECT / "docs/operations.md").read_text().split("## Several machines\n")[1]
_MACHINE, _CONTINUOUS = re.findall(r"^```toml\n(.*?)^```$", _CHAPTER, re.M | re.S)[:2]
SITE = "https://data.example.org/"


def replaced(text: str, documented: dict[str, str]) -> str:
    """Return the documentation's text with other paths."""
    for there, here in documented.items():
        assert there in text, there
        text = text.replace(there, here)
    return text


class Machine:
    """A server that is restarted when it ends, as by systemd."""

    def __init__(self, folder: Path, config: str, *arguments: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.starts = 0
        self._closing = False
        self._lock = threading.Lock()
        self._config, self._arguments = config, arguments
        self._server = self._started()
        self._keeper = threading.Thread(target=self._keep)
        self._keeper.start()

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closing = True
            self._server.process.terminate()
        self._keeper.join()

    @property
    def name(self) -> str:
        """What nginx calls it."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process of now."""
        return self._server.process.pid

    def _started(self) -> RunningServer:
        self.starts += 1
        return RunningServer(self.folder, self._config, *self._arguments, port=self.port)

    def _keep(self) -> None:
        while True:
            self._server.process.wait()
            with self._lock:
                if self._closing:
                    return
                self._server = self._started()


class Machines:
    """Two machines, a third server for continuous queries, and nginx in front."""

    def __init__(self, url: str, machines: list[Machine], continuous: Machine) -> None:
        self.url = url
        self.machines = machines
        self.continuous = continuous

    def replace(self, machine: Machine) -> None:
        """Replace the server of a machine by the documented script."""
        stop = f"kill {machine.pid}; while kill -0 {machine.pid}; do sleep 0.05; done 2>&-"
        script = [str(PROJECT / "docs/replace-server.sh"), self.url, machine.name]
        subprocess.run([*script, "sh", "-c", stop], check=True, timeout=240)

    def replace_store(self, machine: Machine, lines: str) -> None:
        """Replace a store by the documented commands."""
        commands = re.search(r"^ln -s .*\nsystemctl .*\n", _CHAPTER, re.M)
        assert commands
        new = machine.folder / "stations-2.store"
        write_store(new, lines)
        reload = f"kill -HUP {machine.pid}"
        here = {"/srv/": f"{machine.folder}/", "systemctl reload tpf-server": reload}
        subprocess.run(["sh", "-ec", replaced(commands[0], here)], check=True, timeout=60)


def write_store(path: Path, lines: str) -> None:
    """Make a store of N-Triples."""
    source = path.with_suffix(".nt")
    source.write_text(lines)
    index_files([source], path, created=CREATED)


@contextmanager
def serving(folder: Path, static: str, *arguments: str) -> Iterator[Machines]:
    """Run the whole chapter with loopback addresses."""
    front = free_port()
    write_store(folder / "stations-1.store", static)
    with ExitStack() as stack:
        database = stack.enter_context(PostgresServer())
        places = {
            "postgresql://live@10.0.0.9/live": database.url,
            SITE: f"http://127.0.0.1:{front}/",
        }
        machines = []
        for number in (1, 2):
            home = folder / f"machine-{number}"
            home.mkdir()
            shutil.copytree(folder / "stations-1.store", home / "stations-1.store")
            (home / "stations.store").symlink_to("stations-1.store")
            here = {"10.0.0.1": "127.0.0.1", "/srv/": f"{home}/", "port = 3000\n": "", **places}
            config = replaced(_MACHINE, here)
            machines.append(stack.enter_context(Machine(home, config, *arguments)))
        home = folder / "continuous"
        home.mkdir()
        here = {"10.0.0.1": "127.0.0.1", "/var/lib/tpf-continuous": f"{home}/data",
                "port = 3010\n": "", **places}  # fmt: skip
        continuous = stack.enter_context(Machine(home, replaced(_CONTINUOUS, here)))
        site = documented_site(folder, front, machines[0].name, machines[1].name, continuous.name)
        stack.enter_context(running_nginx(folder, site, front))
        yield Machines(f"http://127.0.0.1:{front}/", machines, continuous)


def documented_site(folder: Path, front: int, first: str, second: str, continuous: str) -> str:
    """Return the documented configuration of nginx, for servers at these addresses."""
    return replaced(
        (PROJECT / "docs/nginx-machines.conf").read_text(),
        {
            "/var/cache/nginx/fragments": f"{folder}/cache",
            "10.0.0.1:3000": first,
            "10.0.0.2:3000": second,
            "10.0.0.1:3010": continuous,
            "listen 80;": f"listen 127.0.0.1:{front};",
        },
    )


def checked_nginx(folder: Path, site: str) -> list[str]:
    """Write and check an nginx configuration; return the command that starts it."""
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        "events {}\nhttp {\nlog_format requests '$status $request';\n"
        f"access_log {folder}/access.log requests;\n{temporary}{site}\n}}\n"
    )
    order = [NGINX.command, "-c", f"{folder}/nginx.conf", "-p", str(folder)]
    order += ["-e", f"{folder}/error.log"]
    checked = subprocess.run([*order, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    return order


@contextmanager
def running_nginx(folder: Path, site: str, port: int) -> Iterator[None]:
    """Run nginx; its log has a status and a request line each."""
    process = subprocess.Popen(checked_nginx(folder, site))
    try:
        eventually(lambda: listens(port), process)
        yield
    finally:
        process.terminate()
        process.wait(60)
