"""A real PostgreSQL on a socket, and addresses of live stores."""

import os
import pwd
import shutil
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from tests.support.peers import POSTGRES
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.live.store import LiveStore, open_live_store

_SUPERUSER = "tester"
_CONFIGURATION = """
listen_addresses = ''
unix_socket_directories = '{folder}'
fsync = on
synchronous_commit = on
shared_buffers = 32MB
max_connections = 60
"""


class PostgresServer:
    """A database server in a temporary folder; a context manager.

    Where the tests run as root it runs as the user ``postgres``.
    """

    def __init__(self) -> None:
        self._bin = Path(POSTGRES.command).resolve().parent
        # Not in pytest's folder: another user cannot enter it, and a socket's path must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="live-postgres-"))
        self._user: int | None = None
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            self._user = account.pw_uid
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        data = str(self.folder / "data")
        self._run("initdb", "-D", data, "-U", _SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-sync")
        with (self.folder / "data/postgresql.conf").open("a") as configuration:
            configuration.write(_CONFIGURATION.format(folder=self.folder))
        self.url = f"postgresql://{_SUPERUSER}@/postgres?host={quote(str(self.folder), safe='')}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        done = subprocess.run(
            command,
            user=self._user,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the server that pg_ctl starts would keep a pipe open
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            timeout=120,
        )
        assert done.returncode == 0, (command, done.stderr)

    def start(self) -> None:
        """Start, and wait until it answers."""
        log = str(self.folder / "log")
        self._run("pg_ctl", "start", "-w", "-D", str(self.folder / "data"), "-l", log)

    def stop(self, mode: str = "immediate") -> None:
        """Stop; `immediate` kills all processes, and the next start recovers from the log."""
        self._run("pg_ctl", "stop", "-m", mode, "-D", str(self.folder / "data"))

    def __enter__(self) -> "PostgresServer":
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()
        shutil.rmtree(self.folder)


class Address(NamedTuple):
    """The address of one live store, for any process."""

    place: str
    name: str

    def open(self, settings: LiveSettings | None = None) -> LiveStore:
        """Open the store, or make it."""
        return open_live_store(self.place, settings, self.name)


class Addresses:
    """Makes addresses of new stores, in a folder or a database."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self._folder = folder
        self._url = url
        self._numbers = count()

    def new(self) -> Address:
        """Return the address of a new store."""
        number = next(self._numbers)
        if self._url is not None:
            return Address(self._url, str(number))
        return Address(str(self._folder / f"{number}.sqlite"), "live")
