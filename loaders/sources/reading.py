"""Read foreign tables and archives, within bounds of memory."""

import csv
import io
import itertools
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO

from annotations.errors import TermError
from annotations.instants import utc
from loaders.errors import InputError
from loaders.places import InputPlace

MAX_FIELD = 1 << 24
"""Characters of a value in a table."""
MAX_LINE = 1 << 25
"""Characters of a line in a table."""
MAX_MEMBER = 1 << 32
"""Bytes of a file in an archive, not compressed."""
MAX_RATIO = 200
"""How many times as large a file in an archive may become, beyond `_ANY_RATIO` bytes. Text that is
worth telling is not compressed to a hundredth."""

_ANY_RATIO = 1 << 24
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError,
    ValueError, KeyError, IndexError,
)  # fmt: skip
"""What `zipfile` raises where an archive is damaged, encrypted or made by other means."""


def rows(text: IO[str] | io.TextIOBase, source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield CSV rows with the numbers of their last lines."""
    # A setting of the whole process; its default is an eighth of a megabyte.
    if csv.field_size_limit() < MAX_FIELD:
        csv.field_size_limit(MAX_FIELD)
    reader = csv.reader(line for _, line in lines_of(text, source))
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"no CSV ({error})", source, reader.line_num) from None


def lines_of(text: IO[str] | io.TextIOBase, source: str) -> Iterator[tuple[int, str]]:
    """Return the lines of a text, numbered from one."""
    for number in itertools.count(1):
        try:
            line = text.readline(MAX_LINE)
        except UnicodeDecodeError as error:
            raise InputError(f"not UTF-8 ({error.reason})", source, number) from None
        if not line:
            return
        if len(line) == MAX_LINE and not line.endswith("\n"):
            raise InputError(f"a line of more than {MAX_LINE} characters", source, number)
        yield number, line


def instant_in(text: str) -> datetime:
    """Parse ISO 8601, as UTC without a zone; `ValueError` if malformed."""
    instant = datetime.fromisoformat(text)
    return utc(instant) if instant.tzinfo else instant.replace(tzinfo=UTC)


@contextmanager
def row_of(source: str, line: int | None = None) -> Iterator[None]:
    """Raise errors as `InputError` of a row of a table."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, OverflowError, TermError, csv.Error) as error:
        raise InputError(f"a malformed row ({error})", source, line) from None


@contextmanager
def archive(place: InputPlace) -> Iterator[zipfile.ZipFile]:
    """Open a zip file; its errors are `InputError`."""
    path = str(place)
    try:
        with place.open("rb") as file, zipfile.ZipFile(file) as opened:
            opened.filename = path
            yield opened
    except InputError:
        raise
    except OSError as error:
        raise InputError(error.strerror or str(error), path) from None
    except _DAMAGED as error:
        with place.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise InputError("is neither a directory nor a zip file", path) from None
        reason = str(error).replace(f" {path}", "") or type(error).__name__
        raise InputError(f"a zip file that cannot be read ({reason})", path) from None


def member(opened: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a member of an `archive` of sensible size."""
    info = opened.getinfo(name)
    if info.file_size > MAX_MEMBER:
        raise InputError(f"{name} has more than {MAX_MEMBER >> 30} GB", str(opened.filename))
    if info.file_size > max(_ANY_RATIO, MAX_RATIO * info.compress_size):
        raise InputError(
            f"{name} would become {info.file_size // max(info.compress_size, 1)} times as large",
            str(opened.filename),
        )
    return opened.open(info)
