"""Values: solutions that are there from the first flush on (inline data, constants)."""

from collections.abc import Iterable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Solution
from tpf_client.dataflow.node import Node


class Values(Node):
    """These solutions, sent once, at the first flush.

    Args:
        schema: their variables.
        rows: the solutions, with `UNBOUND` for UNDEF.
    """

    def __init__(self, schema: Sequence[Variable], rows: Iterable[Solution]) -> None:
        self._rows = list(rows)
        certain = frozenset(
            name
            for place, name in enumerate(schema)
            if all(row[place] != UNBOUND for row in self._rows)
        )
        super().__init__(schema, certain)
        self._sent = False

    @property
    def pending(self) -> bool:
        """Whether nothing was sent yet."""
        return not self._sent

    def flush(self) -> None:
        """Send the solutions, once."""
        if not self._sent:
            self._sent = True
            for row in self._rows:
                self.emit(row, 1)
