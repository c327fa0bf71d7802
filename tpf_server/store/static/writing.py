"""Write a static store, and switch to the new content atomically: the last step of every writer.

Sorted terms and rows are checked; files go to a new folder and are flushed; the manifest is
replaced in one rename. A killed writer leaves its litter to the next.
"""

import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from annotations.whole_files import make_durable
from tpf_server.errors import StoreBusyError, StoreError
from tpf_server.store.static import layout
from tpf_server.store.static.columns import ColumnWriter, Ids
from tpf_server.store.static.dictionary import write_dictionary
from tpf_server.store.static.manifest import (
    Manifest,
    content_version,
    file_entry,
    stamp_verified,
    write_manifest,
)

RowColumns: TypeAlias = tuple[Ids, ...]
"""Rows of an order: one column of ids per position, of equal lengths."""

_NO_PREFIXES: Mapping[str, str] = MappingProxyType({})


def write_store(
    store: Path,
    terms: Iterable[pa.Array],
    orders: Mapping[str, Iterable[RowColumns]],
    *,
    created: datetime,
    prefixes: Mapping[str, str] = _NO_PREFIXES,
    source: str = "",
    generation: str | None = None,
) -> Manifest:
    """Write a store, or replace the one there by an atomic switch.

    `terms` ascend strictly by UTF-8 bytes, the empty text first. `orders` has, for each of
    `layout.TRIPLE_ORDERS` (or `layout.QUAD_ORDERS`), its rows in ascending pieces. `created` is
    shown as ``Last-Modified``; `generation` names the folder of its files.
    """
    names = tuple(orders)
    if names not in (layout.TRIPLE_ORDERS, layout.QUAD_ORDERS):
        raise StoreError(f"the orders of a store are not {names}")
    with writing_folder(store) as folder:
        count = write_dictionary(folder / layout.TERMS, folder / layout.FENCE, terms)
        if count > 1 << 32:
            raise StoreError(f"a store holds at most {1 << 32} terms, not {count}")
        totals = {
            name: _write_order(folder, name, names, rows, count) for name, rows in orders.items()
        }
        first = totals[names[0]]
        for name, total in totals.items():
            if total.sums != first.sums:
                raise StoreError(f"the orders {names[0]} and {name} do not hold the same quads")
        files = {name: file_entry(folder / name) for name in layout.files_of(names)}
        manifest = Manifest(
            version=content_version(files, prefixes),
            created=created,
            generation=generation or new_generation(),
            quads=first.rows,
            terms=count,
            graphs=totals["gspo"].firsts if "gspo" in totals else 0,
            orders=names,
            prefixes=dict(prefixes),
            files=files,
            source=source,
        )
        switch_to(store, folder, manifest)
    return manifest


def new_generation() -> str:
    """Return a name that no other generation of a store has."""
    return f"{layout.GENERATION_PREFIX}{secrets.token_hex(8)}"


def switch_to(store: Path, folder: Path, manifest: Manifest) -> None:
    """Make this folder of files the content of the store."""
    stamp_verified(folder, manifest)
    make_durable(folder)
    # One of this name, which was fetched, is there where somebody was killed before the manifest.
    shutil.rmtree(store / manifest.generation, ignore_errors=True)
    folder.rename(store / manifest.generation)
    make_durable(store)
    write_manifest(store, manifest)
    _remove_others(store, manifest.generation)


@contextmanager
def writing_folder(store: Path) -> Iterator[Path]:
    """Give a new folder inside the locked store; remove it where writing fails."""
    existed = store.exists()
    if existed and not store.is_dir():
        raise StoreError(f"{store} is a file: a store is a directory")
    if (
        existed
        and not (store / layout.LOCK).exists()
        and not (store / layout.MANIFEST).exists()
        and any(store.iterdir())
    ):
        raise StoreError(f"{store} is a directory with other files: it is left alone")
    import fcntl  # which only POSIX systems have

    store.mkdir(parents=True, exist_ok=True)
    with (store / layout.LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreBusyError(f"another process is writing {store}") from None
        for litter in store.glob(f"{layout.WRITING_PREFIX}*"):
            shutil.rmtree(litter, ignore_errors=True)
        folder = store / f"{layout.WRITING_PREFIX}{secrets.token_hex(8)}"
        folder.mkdir()
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            if not existed:
                (store / layout.LOCK).unlink()
                store.rmdir()
            raise


def _remove_others(store: Path, generation: str) -> None:
    for other in store.glob(f"{layout.GENERATION_PREFIX}*"):
        if other.name != generation:
            shutil.rmtree(other, ignore_errors=True)


class _Totals(NamedTuple):
    rows: int
    firsts: int
    """Number of distinct first terms; of an order that begins with the graph: of named graphs."""
    sums: dict[str, int]
    """Number of rows, and sum of the ids of each position: equal for orders of the same quads."""


def _write_order(
    folder: Path, name: str, all_orders: tuple[str, ...], pieces: Iterable[RowColumns], terms: int
) -> _Totals:
    per_first = np.zeros(terms, dtype=np.uint32)
    sums = dict.fromkeys(sorted(name), 0)
    rows = 0
    last: list[int] | None = None
    with ExitStack() as stack:

        def open_column(file: str) -> ColumnWriter:
            return stack.enter_context(ColumnWriter(folder / file))

        columns = {
            k: open_column(layout.column_file(name, k))
            for k in layout.stored_columns(name, all_orders)
        }
        equal = (
            {position: open_column(layout.equal_file(position)) for position in name}
            if name == all_orders[0]
            else {}
        )
        for piece in pieces:
            length = len(piece[0])
            if len(piece) != len(name) or any(len(column) != length for column in piece):
                raise StoreError(f"rows of the order {name} need {len(name)} columns of one length")
            if not length:
                continue
            if any(int(column.max()) >= terms for column in piece):
                raise StoreError(f"a row of the order {name} has an id beyond the dictionary")
            _check_ascending(name, piece, last)
            last = [int(column[-1]) for column in piece]
            firsts, counts = _runs(piece[0])
            per_first[firsts] += counts
            for k, writer in columns.items():
                writer.append(piece[k - 1])
            if equal:
                agree = _two_agree(piece)
                for (_, writer), column in zip(equal.items(), piece, strict=True):
                    writer.append(column[agree])
            for position, column in zip(name, piece, strict=True):
                sums[position] += int(column.sum(dtype=np.uint64))
            rows += length
        if rows >= 1 << 32:
            raise StoreError(f"a store holds fewer than {1 << 32} quads, not {rows}")
        starts = np.zeros(terms + 1, dtype=np.uint32)
        np.cumsum(per_first, out=starts[1:], dtype=np.uint32)
        open_column(layout.starts_file(name)).append(starts)
    distinct = int(np.count_nonzero(per_first[1:]))
    return _Totals(rows, distinct, {"rows": rows, **sums})


def _runs(ascending: Ids) -> tuple[Ids, Ids]:
    begins = np.flatnonzero(np.concatenate(([True], ascending[1:] != ascending[:-1])))
    counts = np.diff(begins, append=len(ascending))
    return ascending[begins], counts.astype(np.uint32)


def _check_ascending(name: str, piece: RowColumns, last: list[int] | None) -> None:
    less = np.zeros(len(piece[0]) - 1, dtype=bool)
    same = ~less
    for column in piece:
        less |= same & (column[:-1] < column[1:])
        same &= column[:-1] == column[1:]
    across = last is None or last < [int(column[0]) for column in piece]
    if not (across and less.all()):
        raise StoreError(f"the rows of the order {name} do not ascend strictly")


def _two_agree(piece: RowColumns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    agree = np.zeros(len(piece[0]), dtype=bool)
    for k, column in enumerate(piece):
        for other in piece[:k]:
            agree |= column == other
    return agree
