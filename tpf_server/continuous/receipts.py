"""What became of batches of elements."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from annotations.terms import Term
from tpf_server.continuous.engine.errors import ElementError
from tpf_server.continuous.kept_results import KeptBatch

_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a batch of elements.

    Args:
        accepted: how many were taken.
        refused: those that are malformed.
        dropped: how many came too late for CQELS-QL.
        late: how many came after an evaluation in C-SPARQL that should have seen them.
        repeated: whether the batch had come before; then nothing was done, and this is what became
            of it.
    """

    accepted: int
    refused: tuple[ElementError, ...]
    dropped: int
    late: int
    repeated: bool = False


class Receipts:
    """The receipts of the latest batches that had an identifier."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Term, str], Receipt] = {}

    def repeated(self, stream: Term, batch: str | None) -> Receipt | None:
        """The receipt of a batch that came before."""
        found = None if batch is None else self._kept.get((stream, batch))
        return None if found is None else replace(found, repeated=True)

    def forget(self, stream: Term) -> None:
        """A stream is gone, and with it its batches."""
        self._kept = {key: receipt for key, receipt in self._kept.items() if key[0] != stream}

    def listed(self) -> list[KeptBatch]:
        """The batches that are remembered, without what was refused of them."""
        return [
            KeptBatch(stream, batch, each.accepted, each.dropped, each.late)
            for (stream, batch), each in self._kept.items()
        ]

    def take_up(self, batches: Iterable[KeptBatch]) -> None:
        """Remember batches that an earlier server took."""
        for each in batches:
            receipt = Receipt(each.accepted, (), each.dropped, each.late)
            self.keep(Term(each.stream), each.batch, receipt)

    def keep(self, stream: Term, batch: str | None, receipt: Receipt) -> None:
        """Remember what became of a batch."""
        if batch is None:
            return
        self._kept[stream, batch] = receipt
        if len(self._kept) > _REMEMBERED:
            del self._kept[next(iter(self._kept))]
