"""The tables of a GTFS feed: CSV files in a zip file or a directory."""

import csv
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from annotations.errors import TermError
from loaders.errors import InputError
from loaders.sources.sizes import size_of


class Tables:
    """The tables of a feed.

    Args:
        path: the zip file or the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def size(self, name: str | None = None) -> int:
        """Bytes of a table, or of all, not compressed; 0 where there is none."""
        if self.path.is_dir():
            return size_of([self.path / name if name else self.path])
        with zipfile.ZipFile(self.path) as archive:
            members = archive.infolist()
        return sum(each.file_size for each in members if name in (None, each.filename))

    def rows(
        self, name: str, columns: tuple[str, ...], optional: bool = False
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """The rows of a table with their line numbers.

        Args:
            name: of the file.
            columns: those that must be there; others may be.
            optional: a feed may do without this table.

        Raises:
            InputError: the table is missing or not readable, or lacks a column.
        """
        with self._open(name, optional) as text:
            if text is None:
                return
            reader = csv.reader(text)
            header = [column.strip() for column in next(reader, [])]
            if missing := [column for column in columns if column not in header]:
                raise InputError(f"no column {', '.join(missing)}", self.place(name), 1)
            for row in reader:
                if row:
                    # Rows may be shorter: empty values at the end may be left out.
                    values = [value.strip() for value in row]
                    values += [""] * (len(header) - len(values))
                    yield reader.line_num, dict(zip(header, values, strict=False))

    def place(self, name: str) -> str:
        """Where a table is, for messages."""
        return str(self.path / name) if self.path.is_dir() else f"{self.path}: {name}"

    @contextmanager
    def line(self, name: str, line: int) -> Iterator[None]:
        """What fails in this block is the fault of a line of a table.

        Raises:
            InputError: a value is malformed.
        """
        try:
            yield
        except (ValueError, TermError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"a malformed row ({error})", self.place(name), line) from None

    @contextmanager
    def _open(self, name: str, optional: bool) -> Iterator[io.TextIOBase | None]:
        try:
            if self.path.is_dir():
                if optional and not (self.path / name).exists():
                    yield None
                    return
                with (self.path / name).open(encoding="utf-8-sig", newline="") as text:
                    yield text
                return
            with zipfile.ZipFile(self.path) as archive:
                if name not in archive.namelist():
                    if not optional:
                        raise InputError(f"holds no {name}", str(self.path))
                    yield None
                    return
                with archive.open(name) as raw:
                    yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        except zipfile.BadZipFile:
            raise InputError("is neither a directory nor a zip file", str(self.path)) from None
        except UnicodeDecodeError as error:
            raise InputError(f"not UTF-8 ({error})", self.place(name)) from None
        except OSError as error:
            place = self.place(name) if self.path.exists() else str(self.path)
            raise InputError(error.strerror or str(error), place) from error
