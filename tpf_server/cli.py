"""``tpf-server``: serve datasets as fragments, with granian.

The first process reads the settings, indexes files and supervises the workers. ``SIGTERM`` and
``SIGINT`` end it gracefully; at ``SIGHUP`` it reads the settings again.
"""

import dataclasses
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from annotations.whole_files import replaced_path
from tpf_server.claimed_port import address_of, claimed_port
from tpf_server.configuration import (
    REMOVED,
    Configuration,
    read_configuration,
    settings_help,
)
from tpf_server.connections import allow_many_descriptors, most_connections
from tpf_server.errors import ServerError, SettingsError
from tpf_server.settings import Settings, table
from tpf_server.sources import (
    check_sources,
    dataset_of_path,
    each_name_once,
    sources_changed,
)
from tpf_server.store.static.file_systems import is_store_url
from tpf_server.workers import (
    ADDRESS_VARIABLE,
    MEMORY,
    MULTIPROCESS_VARIABLE,
    THREADS,
    WORKER_VARIABLE,
    OneLine,
)

_START_SECONDS = 120
_STOP_SECONDS = 30
_LISTEN_BACKLOG = 4096
"""Connections that wait to be accepted, as after an expiry that many clients wait for; the system
may allow fewer."""


class _Data(click.Path):
    def convert(self, value: Any, *context: Any) -> Any:
        return value if is_store_url(value) else super().convert(value, *context)


def _options() -> list[click.Parameter]:
    parameters: list[click.Parameter] = [
        click.Argument(["data"], nargs=-1, type=_Data(exists=True)),
        click.Option(["--config"], type=click.Path(exists=True, dir_okay=False), help="TOML file"),
        click.Option(["--help-settings"], is_flag=True, help="show all settings and stop"),
    ]
    for row in table(Settings):
        flag = f"--{row.name.replace('_', '-')}"
        if row.type is bool:
            flag = f"{flag}/--no-{row.name.replace('_', '-')}"
        if row.type in (bool, int, float, str):
            parameters.append(click.Option([flag], type=row.type, default=None, help=row.help))
    for name in REMOVED:
        # So that whoever gives one is told what replaces it.
        flag = f"--{name.replace('_', '-')}"
        parameters.append(click.Option([flag], hidden=True, is_flag=name == "query", default=None))
    return parameters


def _command(data: Sequence[str], config: str | None, help_settings: bool, **flags: Any) -> None:
    if help_settings:
        click.echo(settings_help())
        return
    serve(data, Path(config) if config else None, flags)


class _Command(click.Command):
    """The command; ``backup`` and ``restore`` as the first argument are others."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and args[0] in _OTHERS:
            # The server loads nothing of what they need.
            from tpf_server.backup import BACKUP_COMMANDS

            name = args.pop(0)
            return BACKUP_COMMANDS[name].make_context(f"{info_name} {name}", args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return click.Command.invoke(ctx.command, ctx)
        except ServerError as error:
            click.echo(f"tpf-server: {error}", err=True)
            raise SystemExit(2 if isinstance(error, SettingsError) else 1) from None


_OTHERS = ("backup", "restore")
main = _Command(
    "tpf-server",
    params=_options(),
    callback=_command,
    help="Serve DATA (stores, at paths or s3://…, or RDF files to index at start) as fragments. "
    "tpf-server backup and tpf-server restore keep copies of live facts: see their --help.",
)


def configure(data: Sequence[str], file: Path | None, flags: Mapping[str, Any]) -> Configuration:
    """Return the settings of all sources, with the datasets of the command line."""
    server, datasets = read_configuration(file, os.environ, flags)
    datasets = (*datasets, *map(dataset_of_path, data))
    if not datasets and not server.continuous:
        raise SettingsError(
            "there is nothing to serve: name an RDF file, a dataset in --config, or --continuous"
        )
    return Configuration(server, tuple(each_name_once(datasets)))


def serve(data: Sequence[str], file: Path | None, flags: Mapping[str, Any]) -> None:
    """Serve until a signal."""
    configuration = configure(data, file, flags)
    settings = configuration.server
    address = address_of(settings.host)
    with (
        claimed_port(address, settings.port) as port,
        TemporaryDirectory(prefix="tpf-server-") as folder,
    ):
        settings = dataclasses.replace(settings, port=port)
        configuration = configuration._replace(server=settings)
        handed = Path(folder) / "settings.json"

        def hand_over(new: Configuration) -> None:
            nonlocal configuration
            _hand_over(new, handed)
            configuration = new

        def reload() -> None:
            try:
                hand_over(configure(data, file, flags).reloaded_by(settings))
            except (ServerError, OSError) as error:
                click.echo(f"tpf-server: the settings stay as they were: {error}", err=True)

        hand_over(configuration)
        os.environ[WORKER_VARIABLE] = str(handed)
        os.environ[ADDRESS_VARIABLE] = f"{address}/{port}"
        os.environ[MULTIPROCESS_VARIABLE] = folder
        for name, value in MEMORY.items():
            os.environ.setdefault(name, value)
        names = ", ".join(dataset.name for dataset in configuration.datasets) or "none"
        line = f"tpf-server: {settings.base} (datasets: {names})"
        allow_many_descriptors()
        changed = partial(_changed, lambda: configuration)
        _watch_over_workers(address, settings, reload, changed, line)


def _hand_over(configuration: Configuration, file: Path) -> None:
    # Whatever is wrong with the data is found out here, once; workers only open what is there.
    check_sources(configuration)
    text = configuration.to_json()
    with replaced_path(file, durable=False) as new:
        if hasattr(os, "memfd_create"):
            # The tokens are in it: a file in memory is gone with this process, however that ends.
            descriptor = os.memfd_create("settings")
            with open(descriptor, "w", encoding="utf-8", closefd=False) as memory:
                memory.write(text)
            new.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
            _handed.append(descriptor)
            if len(_handed) > _KEPT:
                os.close(_handed.pop(0))
        else:
            new.touch(0o600)
            new.write_text(text, encoding="utf-8")


_handed: list[int] = []
"""Files in memory that hold settings."""
_KEPT = 3
"""How many of them stay: a worker may be about to read the last one but one."""


def _watch_over_workers(
    address: str,
    settings: Settings,
    reload: Callable[[], None],
    changed: Callable[[], bool],
    line: str,
) -> None:
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.log import LogLevels

    from tpf_server.supervisor import SignalFlag, Supervisor

    # A forked worker could inherit a lock that a thread of this process holds just then.
    multiprocessing.set_start_method("spawn", force=True)
    reloads = SignalFlag()
    server = Supervisor(
        reloads,
        interface=Interfaces.WSGI,
        address=address,
        port=settings.port,
        workers=settings.workers,
        backlog=_LISTEN_BACKLOG,
        # As many connections as a worker holds, most of them idle between two requests.
        backpressure=most_connections(),
        blocking_threads=THREADS
        + settings.followers * settings.continuous
        + settings.change_followers,
        log_level=LogLevels.warning,
        log_access=settings.access_log,
        log_dictconfig=_LOGGING,
        websockets=False,
        # To find out which version of HTTP a client speaks would mean to wait for its first byte,
        # for ever.
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=round(settings.idle_timeout * 1000)),
        workers_kill_timeout=_STOP_SECONDS,
    )
    # Whoever follows something holds a thread, which sleeps: their number is nothing to warn about.
    logging.getLogger("_granian").addFilter(
        lambda record: "Python threads" not in record.getMessage()
    )
    started = settings, line, server.replace_failed_workers
    threading.Thread(target=_announce, args=started, daemon=True).start()
    threading.Thread(target=_heed, args=(reloads, reload), daemon=True).start()
    if settings.source_interval > 0:
        looking = (settings.source_interval, changed, reloads)
        threading.Thread(target=_look_again, args=looking, daemon=True).start()
    # A Ctrl-C goes to the workers as well. They inherit that it is held back, and are told to stop
    # by this process, where a thread from before takes the signal. The tracker would let it through
    # when it starts.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    server.serve()


def _changed(now: Callable[[], Configuration]) -> bool:
    try:
        return sources_changed(now())
    except (ServerError, OSError) as error:
        click.echo(f"tpf-server: {error}; it is served as it was", err=True)
        return False


def _look_again(seconds: float, changed: Callable[[], bool], flag: threading.Event) -> None:
    while True:
        time.sleep(seconds)
        if changed():
            flag.set()


def _heed(flag: threading.Event, action: Callable[[], None]) -> None:
    while flag.wait():
        flag.clear()
        try:
            action()
        except Exception:
            # Otherwise no signal would be heeded any more.
            logging.getLogger("tpf_server").exception("the settings stay as they were")


_LOGGING: dict[str, Any] = {
    "formatters": {
        "generic": {"format": "[%(levelname)s] %(message)s"},
        "access": {"()": OneLine},
    },
    "handlers": {
        name: {
            "formatter": formatter,
            "class": "logging.StreamHandler",
            "stream": "ext://sys.stderr",
        }
        for name, formatter in (("console", "generic"), ("access", "access"))
    },
}


def _announce(settings: Settings, line: str, started: Callable[[], None]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    while not _is_ready(address, settings.port):
        if time.monotonic() > deadline:
            logging.getLogger("tpf_server").error("no worker answers")
            break
        time.sleep(0.05)
    else:
        click.echo(line, err=True)
    started()


def _is_ready(address: str, port: int) -> bool:
    """Ask ``/readyz`` over a socket, because importing `http.client` would delay the start."""
    try:
        with socket.create_connection((address, port), timeout=5) as connection:
            connection.sendall(f"GET /readyz HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            return connection.recv(1024).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False
