"""What goes with triple patterns, found by their constants."""

from typing import Generic, TypeVar

from tpf_client.dataflow.changes import TermId
from tpf_server.continuous.engine.windows.matchers import EncodedTriple, Mask

ItemT = TypeVar("ItemT")


class ByConstants(Generic[ItemT]):
    """Finds what goes with the patterns that a triple may match; repeated variables aside.

    That costs as much as there is to be found, and as there are combinations of places that are
    constant in some pattern.

    Attributes:
        of_predicates: what goes with patterns of which only the predicate is constant.
        of_masks: with others, by which of their places are constant.
    """

    def __init__(self) -> None:
        self.of_predicates: dict[TermId, list[ItemT]] = {}
        self.of_masks: dict[tuple[bool, bool, bool], dict[Mask, list[ItemT]]] = {}

    def add(self, mask: Mask, item: ItemT) -> None:
        """Something goes with a pattern."""
        subject, predicate, object_ = mask
        if predicate is not None and subject is None and object_ is None:
            self.of_predicates.setdefault(predicate, []).append(item)
        else:
            table = self.of_masks.setdefault(_places(mask), {})
            table.setdefault(mask, []).append(item)

    def remove(self, mask: Mask, item: ItemT) -> None:
        """It does no more; who goes through what was found is not disturbed."""
        subject, predicate, object_ = mask
        if predicate is not None and subject is None and object_ is None:
            left = [each for each in self.of_predicates.pop(predicate) if each != item]
            if left:
                self.of_predicates[predicate] = left
            return
        table = self.of_masks[_places(mask)]
        left = [each for each in table.pop(mask) if each != item]
        if left:
            table[mask] = left
        elif not table:
            del self.of_masks[_places(mask)]

    def of(self, triple: EncodedTriple) -> list[ItemT]:
        """What goes with the patterns that a triple may match."""
        of_predicate = self.of_predicates.get(triple[1], [])
        if not self.of_masks:
            return of_predicate
        found = of_predicate[:]
        for places, table in self.of_masks.items():
            mask = (
                triple[0] if places[0] else None,
                triple[1] if places[1] else None,
                triple[2] if places[2] else None,
            )
            found += table.get(mask, ())
        return found


def _places(mask: Mask) -> tuple[bool, bool, bool]:
    return mask[0] is not None, mask[1] is not None, mask[2] is not None
