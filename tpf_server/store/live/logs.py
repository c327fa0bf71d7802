"""Open the log of a live store, by where it is kept."""

from pathlib import Path
from typing import TypeGuard

from annotations.labels import FactKey
from annotations.wording import how_to_install
from tpf_server.errors import StoreError
from tpf_server.store.live.log import Log
from tpf_server.store.live.sqlite_log import SqliteLog

POSTGRESQL = ("postgresql://", "postgres://")
"""How the URL of a PostgreSQL database begins."""


def open_log(location: str | Path, key: FactKey | None, name: str = "live") -> Log:
    """Open the log of a live store, or make it; a `StoreError` for another key, too."""
    log = _open(location, name)
    if key is None:
        return log
    try:
        made_with = log.setting("key", key)
        if made_with != key:
            raise StoreError(
                f"the live store {name!r} was made with key {made_with!r}, not {key!r}"
            )
    except BaseException:
        log.close()
        raise
    return log


def is_postgresql(location: str | Path) -> TypeGuard[str]:
    """True for a database of PostgreSQL."""
    return isinstance(location, str) and location.startswith(POSTGRESQL)


def _open(location: str | Path, name: str) -> Log:
    if not is_postgresql(location):
        return SqliteLog(location)
    try:
        from tpf_server.store.live.postgres_log import PostgresLog
    except ImportError as error:
        raise StoreError(f"PostgreSQL needs an extra: {how_to_install('postgres')}") from error
    return PostgresLog(location, name)
