"""The tables of a GTFS feed: CSV files in a zip file or a directory."""

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from loaders.errors import InputError
from loaders.places import InputPlace
from loaders.sources.reading import archive, member, row_of, rows
from loaders.sources.sizes import size_of


class Tables:
    """The tables of a feed.

    Args:
        path: the zip file or the directory.
    """

    def __init__(self, path: InputPlace) -> None:
        self.path = path

    def size(self, name: str | None = None) -> int:
        """Bytes of a table, or of all, not compressed; 0 where there is none."""
        if self.path.is_dir():
            return size_of([self.path / name if name else self.path])
        with archive(self.path) as opened:
            members = opened.infolist()
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
        place = self.place(name)
        with self._open(name, optional) as text:
            if text is None:
                return
            found = rows(text, place)
            header = [column.strip() for column in next(found, (1, []))[1]]
            if missing := [column for column in columns if column not in header]:
                raise InputError(f"no column {', '.join(missing)}", place, 1)
            for line, row in found:
                if row:
                    # Rows may be shorter: empty values at the end may be left out.
                    values = [value.strip() for value in row]
                    values += [""] * (len(header) - len(values))
                    yield line, dict(zip(header, values, strict=False))

    def place(self, name: str) -> str:
        """Where a table is, for messages."""
        return str(self.path / name) if self.path.is_dir() else f"{self.path}: {name}"

    def line(self, name: str, line: int) -> AbstractContextManager[None]:
        """What fails in this block is the fault of a line of a table."""
        return row_of(self.place(name), line)

    @contextmanager
    def _open(self, name: str, optional: bool) -> Iterator[io.TextIOBase | None]:
        if self.path.is_dir():
            if optional and not (self.path / name).is_file():
                yield None
                return
            try:
                with (self.path / name).open(encoding="utf-8-sig", newline="") as text:
                    yield text
            except OSError as error:
                raise InputError(error.strerror or str(error), self.place(name)) from None
            return
        with archive(self.path) as opened:
            if name not in opened.namelist():
                if not optional:
                    raise InputError(f"holds no {name}", str(self.path))
                yield None
                return
            with member(opened, name) as raw:
                yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
