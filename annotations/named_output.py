"""Files to write whose errors say which one it was, also where it was opened long before."""

import io
from typing import Any


class NamedOutput(io.FileIO):
    """A file to write, without a buffer.

    Args:
        file: its path, or the descriptor of what is open already and stays so.
        name: what errors call it.
    """

    def __init__(self, file: Any, name: str) -> None:
        super().__init__(file, "w", closefd=not isinstance(file, int))
        self._called = name

    def write(self, data: Any) -> int:
        """Write some of it; returns how many bytes.

        Raises:
            OSError: it cannot be written; has the name.
        """
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self._called
            raise
