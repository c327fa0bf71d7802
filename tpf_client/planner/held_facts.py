"""The facts that one continuous query looks at, whichever of its fragments hold them."""

from collections.abc import Collection, Iterable, Mapping

from annotations.labels import Label
from annotations.terms import Quad, Term


class HeldFacts:
    """Quads with the labels that were read last.

    A quad is held as long as one of the fragments that it came with holds it.

    Attributes:
        find: the label of a quad, or of its four terms, and what else is given if it is not held.
        labelled: the predicates of which any fact has had a label.
    """

    __slots__ = ("_labels", "_more", "find", "labelled")

    def __init__(self) -> None:
        self._labels: dict[Quad, Label | None] = {}
        self.find = self._labels.get
        self.labelled: set[Term] = set()
        self._more: dict[Quad, int] = {}
        """How many fragments beside the first hold a quad, where any does."""

    def __contains__(self, quad: Quad) -> bool:
        return quad in self._labels

    def __len__(self) -> int:
        return len(self._labels)

    def label(self, quad: Quad) -> Label | None:
        """The label of a held quad; ``None``: it has none.

        Raises:
            KeyError: it is not held.
        """
        return self._labels[quad]

    def update(
        self, come: Collection[Quad], gone: Iterable[Quad], labels: Mapping[Quad, Label | None]
    ) -> None:
        """One fragment was read.

        Args:
            come: the quads that it did not hold before.
            gone: the quads that it holds no more.
            labels: all that it holds, with their labels.
        """
        for quad in come:
            if quad in self._labels:
                self._more[quad] = self._more.get(quad, 0) + 1
        self._labels.update(labels)
        self.labelled.update({quad[1] for quad, label in labels.items() if label is not None})
        for quad in gone:
            others = self._more.pop(quad, 0)
            if others == 0:
                del self._labels[quad]
            elif others > 1:
                self._more[quad] = others - 1
