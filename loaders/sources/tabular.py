"""CSV files with a declarative mapping: CSV on the Web (CSVW) metadata."""

import json
from collections.abc import Iterator, Mapping, Sequence

from annotations.terms import Quad
from loaders.errors import InputError
from loaders.places import InputPlace, input_place
from loaders.sources.base import size_of
from loaders.sources.csvw_mapping import CSVW_PREFIXES, file_beside, read_metadata


class Tabular:
    """Tables that a CSVW metadata file describes."""

    name = "csv"
    prefixes: Mapping[str, str] = CSVW_PREFIXES

    def __init__(
        self,
        metadata: str | InputPlace,
        files: Sequence[str | InputPlace] = (),
        base: str | None = None,
    ) -> None:
        path = input_place(metadata)
        try:
            described = json.loads(path.read_bytes())
        except InputError:
            raise
        except OSError as error:
            raise InputError(error.strerror or str(error), str(path)) from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"not JSON ({error})", str(path)) from None
        self._tables = read_metadata(described, str(path), base)
        if files:
            if len(self._tables) != 1:
                raise InputError("describes several tables; name no files", str(path))
            self._files = [(input_place(file), self._tables[0]) for file in files]
        else:
            self._files = [(file_beside(path, table.url), table) for table in self._tables]
        for file, _ in self._files:
            if not file.is_file():
                raise InputError("no such file", str(file))

    def size(self) -> int:
        """About how many bytes the tables have."""
        return size_of(file for file, _ in self._files)

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
        file, table = self._files[number]
        path = str(file)
        try:
            with file.open(encoding=table.encoding, newline="") as lines:
                for row in table.rows(lines, path, share, shares, f"t{number}"):
                    yield from row.quads
        except UnicodeDecodeError as error:
            raise InputError(f"not {table.encoding} ({error.reason})", path) from None
        except LookupError:
            raise InputError(f"no encoding {table.encoding!r}", path) from None
        except OSError as error:
            raise InputError(error.strerror or str(error), path) from error
