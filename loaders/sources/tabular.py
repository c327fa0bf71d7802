"""CSV files with a declarative mapping: CSV on the Web (CSVW) metadata."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from annotations.terms import Quad
from loaders.errors import InputError
from loaders.sources.csvw_mapping import CSVW_PREFIXES, local_file, read_metadata
from loaders.sources.sizes import size_of


class Tabular:
    """Tables that a CSVW metadata file describes.

    Args:
        metadata: the metadata file (JSON).
        files: the CSV files that are read by its only table description; none: those that the
            metadata name, relative to their own place.
        base: IRI that relative ones are resolved against; ``None``: ``@base`` of the metadata.

    Raises:
        InputError: the metadata are missing or malformed, or a table is missing.
    """

    name = "csv"
    prefixes: Mapping[str, str] = CSVW_PREFIXES

    def __init__(
        self, metadata: str | Path, files: Sequence[str | Path] = (), base: str | None = None
    ) -> None:
        path = Path(metadata)
        try:
            described = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(error.strerror or str(error), str(path)) from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"not JSON ({error})", str(path)) from None
        self._tables = read_metadata(described, str(path), base)
        if files:
            if len(self._tables) != 1:
                raise InputError("describes several tables; name no files", str(path))
            self._files = [(str(file), self._tables[0]) for file in files]
        else:
            self._files = [
                (str(local_file(path.parent, table.url, str(path))), table)
                for table in self._tables
            ]
        for file, _ in self._files:
            if not Path(file).is_file():
                raise InputError("no such file", file)

    def size(self) -> int:
        """About how many bytes the tables have."""
        return size_of(Path(file) for file, _ in self._files)

    def pieces(self, count: int) -> Sequence[str]:
        """Shares of the rows of every file."""
        count = max(count, 1)
        return [
            json.dumps([number, share, count])
            for number in range(len(self._files))
            for share in range(count)
        ]

    def quads(self, piece: str) -> Iterator[Quad]:
        """The statements of every n-th row of a file."""
        number, share, shares = json.loads(piece)
        path, table = self._files[number]
        try:
            with open(path, encoding=table.encoding, newline="") as lines:
                for row in table.rows(lines, path, share, shares, f"t{number}"):
                    yield from row.quads
        except UnicodeDecodeError as error:
            raise InputError(f"not {table.encoding} ({error.reason})", path) from None
        except LookupError:
            raise InputError(f"no encoding {table.encoding!r}", path) from None
        except OSError as error:
            raise InputError(error.strerror or str(error), path) from error
