"""Columns of ids: ``.npy`` files of little-endian uint32, written in pieces, read mapped."""

import mmap
import os
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from tpf_server.errors import CorruptStoreError

Ids: TypeAlias = npt.NDArray[np.uint32]
"""A column of term ids."""

_DTYPE = np.dtype("<u4")


class ColumnWriter:
    """Write a column piece by piece; closing it makes it durable."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._length = 0
        self._write_header()

    def _write_header(self) -> None:
        # numpy leaves room in the header for the length to grow, so that it can be rewritten.
        npy.write_array_header_1_0(
            self._file, {"descr": "<u4", "fortran_order": False, "shape": (self._length,)}
        )

    def append(self, ids: Ids) -> None:
        self._file.write(np.ascontiguousarray(ids, dtype=_DTYPE).data)
        self._length += len(ids)

    def close(self) -> None:
        """Write the length, and flush to the disk."""
        if self._file.closed:
            return
        self._file.seek(0)
        self._write_header()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def map_column(path: Path, length: int | None = None) -> Ids:
    """Map a column of this length."""
    try:
        with path.open("rb") as file:
            npy.read_magic(file)
            shape, _, dtype = npy.read_array_header_1_0(file)
            offset = file.tell()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise CorruptStoreError(f"{path} is corrupt: {error}") from None
    expected = shape if length is None else (length,)
    if len(shape) != 1 or shape != expected or dtype != _DTYPE:
        raise CorruptStoreError(f"{path} is no column of {length} ids, but of {shape} of {dtype}")
    if len(mapped) != offset + 4 * shape[0]:
        raise CorruptStoreError(f"{path} is cut short")
    if not shape[0]:
        return np.empty(0, dtype=np.uint32)
    return np.frombuffer(mapped, dtype=_DTYPE, count=shape[0], offset=offset)
