"""Backups of live stores, and going on with what they hold."""

from contextlib import closing
from pathlib import Path

from tpf_server.errors import CorruptStoreError, StoreError
from tpf_server.store.live.log import Contents, decode
from tpf_server.store.live.logs import POSTGRESQL, open_log
from tpf_server.store.live.sqlite_log import SqliteLog
from tpf_server.store.live.sqlite_tables import read_backup


def back_up(place: str | Path, file: Path, name: str = "live") -> int:
    """Write the log of a live store to a new file, while others go on to publish.

    Args:
        place: a SQLite file, or the URL of a PostgreSQL database.
        file: what is made: a SQLite file, also of a log in PostgreSQL.
        name: which of the stores of a database.

    Returns:
        the number of the newest batch in it.

    Raises:
        StoreError: there is no such log, it has lost batches, or the file cannot be written.
    """
    if not _is_url(place) and not Path(place).exists():
        raise StoreError(f"there is no live store {place}")
    with closing(open_log(place, None, name)) as log:
        log.save(file)
    batches = read_backup(file).batches
    return batches[-1][0] if batches else 0


def restore(place: str | Path, file: Path | None, published: int, name: str = "live") -> int:
    """Put a backup in the place of the log of a live store.

    The numbers of all batches that were acknowledged are not used again; servers that run read the
    log anew. A log that cannot be read is put aside under the ending ``.damaged``, after which
    servers that run have to be started again.

    Args:
        place: a SQLite file, or the URL of a PostgreSQL database.
        file: the backup; ``None``: go on with what is left in the log.
        published: now, in microseconds.
        name: which of the stores of a database.

    Returns:
        the number that the log goes on behind.

    Raises:
        StoreError: the backup or the log cannot be read, or the log cannot be written.
    """
    log = open_log(place, None, name) if _is_url(place) else None
    with closing(log or _what_is_left(Path(place), aside=file is not None)) as found:
        contents = read_backup(file) if file is not None else found.contents()
        _check(contents, str(file or place))
        return found.replace(contents, published)


def _is_url(place: str | Path) -> bool:
    return isinstance(place, str) and place.startswith(POSTGRESQL)


def _what_is_left(path: Path, *, aside: bool) -> SqliteLog:
    try:
        return SqliteLog(path)
    except CorruptStoreError:
        pass
    try:
        log = SqliteLog(path, refuse_loss=False)
        log.contents()
        return log
    except StoreError:
        if not aside:
            raise
    for ending in ("", "-wal", "-shm"):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(part.with_name(f"{part.name}.damaged"))
    return SqliteLog(path, refuse_loss=False)


def _check(contents: Contents, where: str) -> None:
    for sequence, published, _, payload in contents.batches:
        decode(sequence, published, payload)
    if "key" not in contents.settings:
        raise StoreError(f"{where} is no live store")
