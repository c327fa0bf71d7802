"""Match the triples of an element to rows of a pattern."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

from annotations.terms import Variable, is_variable
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary

# What of a window a query sees that was registered when the window was in use already.


class Watermark:
    """Count registrations.

    A row of a shared window is stamped with the number of the last registration before it; a query
    sees the rows whose stamps are not smaller than its own number.
    """

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        """Return the number of a new registration."""
        self.last += 1
        return self.last


EncodedTriple = tuple[TermId, TermId, TermId]
EncodedQuad = tuple[TermId, TermId, TermId, TermId]
"""A triple with its graph; 0 where it is in none."""
Mask = tuple[TermId | None, TermId | None, TermId | None]
"""Subject, predicate and object of a pattern where they are constants, else ``None``."""


@dataclass(frozen=True, slots=True)
class PatternKey:
    """Triple patterns with their variables numbered: equal for patterns that differ in names only.

    Each position is ``(True, column)`` or ``(False, term identifier)``.
    """

    patterns: tuple[tuple[tuple[bool, int], ...], ...]


def number_variables(
    patterns: Sequence[Sequence[str]], dictionary: TermDictionary
) -> tuple[PatternKey, tuple[Variable, ...]]:
    """Return the key of triple patterns, and the variables of its columns."""
    columns: dict[str, int] = {}
    keyed = tuple(
        tuple(
            (True, columns.setdefault(term, len(columns)))
            if is_variable(term)
            else (False, dictionary.encode(term))  # type: ignore[arg-type]
            for term in pattern[:3]
        )
        for pattern in patterns
    )
    return PatternKey(keyed), tuple(Variable(name) for name in columns)


def _columns(
    positions: Iterable[tuple[bool, int]], start: int
) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    first: dict[int, int] = {}
    same: list[tuple[int, int]] = []
    for at, (variable, column) in enumerate(positions, start):
        if variable and first.setdefault(column, at) != at:
            same.append((first[column], at))
    return tuple([first[column] for column in range(len(first))]), same


class TripleMatcher:
    """One triple pattern: a triple gives at most one row."""

    def __init__(self, key: PatternKey) -> None:
        (positions,) = key.patterns
        self._positions = positions
        subject, predicate, object_ = (None if free else value for free, value in positions)
        self.mask: Mask = (subject, predicate, object_)
        self._takes, self._same = _columns(positions, 0)
        self.width = len(self._takes)
        self.row: Callable[[EncodedTriple], Solution | None] = self._row
        """The row of a triple whose constants fit; ``None`` where repeated variables differ."""
        if not self._same and self.width > 1:
            self.row = itemgetter(*self._takes)

    def _row(self, triple: EncodedTriple) -> Solution | None:
        for one, other in self._same:
            if triple[one] != triple[other]:
                return None
        return tuple([triple[position] for position in self._takes])

    def triple(self, row: Solution) -> EncodedTriple:
        s, p, o = (row[value] if free else value for free, value in self._positions)
        return s, p, o


class StarMatcher:
    """Several patterns with the same subject and constant, different predicates."""

    def __init__(self, key: PatternKey) -> None:
        self.subject = key.patterns[0][0]
        self.predicates = tuple(pattern[1][1] for pattern in key.patterns)
        self.objects = tuple(pattern[2] for pattern in key.patterns)
        # -1 is the subject, else the number of the pattern.
        self._sources, self._same = _columns([self.subject, *self.objects], -1)
        self.width = len(self._sources)

    def row(self, subject: TermId, values: Sequence[TermId]) -> Solution | None:
        """Return the row of one object for each pattern.

        ``None`` where repeated variables differ.
        """
        for one, other in self._same:
            left = subject if one < 0 else values[one]
            if left != values[other]:
                return None
        return tuple([subject if at < 0 else values[at] for at in self._sources])

    def places(self, predicates: Sequence[TermId]) -> tuple[int, ...] | None:
        """Return for each column the index of its predicate, or -1 for the subject.

        ``None``: not every pattern has exactly one of the predicates, or a pattern has other
        constants.
        """
        if self._same or not self.subject[0] or not all(free for free, _ in self.objects):
            return None
        if any(predicates.count(own) != 1 for own in self.predicates):
            return None
        result = [predicates.index(own) for own in self.predicates]
        return tuple([-1 if at < 0 else result[at] for at in self._sources])

    def parts(self, row: Solution) -> list[list[Any]]:
        """Return the objects of a row for each pattern, as `values` does."""
        return [[row[value] if variable else value] for variable, value in self.objects]

    def values(self, subject: TermId, triples: Sequence[EncodedTriple]) -> list[list[Any]]:
        """Return the objects of these triples of `subject` for each pattern."""
        variable, constant = self.subject
        if not variable and constant != subject:
            return [[] for _ in self.predicates]
        return [
            [
                value
                for _, predicate, value in triples
                if predicate == own and (free or value == constant)
            ]
            for own, (free, constant) in zip(self.predicates, self.objects, strict=True)
        ]


class StampedStarMatcher(StarMatcher):
    """A star whose rows and objects are stamped (see `Watermark`).

    A row of several elements has the stamp of the first of them.
    """

    def __init__(self, key: PatternKey, watermark: Watermark) -> None:
        super().__init__(key)
        self._watermark = watermark

    def row(self, subject: TermId, values: Sequence[Any]) -> Solution | None:
        """See `StarMatcher`; values are pairs of an object and its stamp."""
        row = super().row(subject, [value for value, _ in values])
        return None if row is None else (*row, min([stamp for _, stamp in values]))

    def parts(self, row: Solution) -> list[list[Any]]:
        return [[(value, row[-1])] for (value,) in super().parts(row)]

    def values(self, subject: TermId, triples: Sequence[EncodedTriple]) -> list[list[Any]]:
        stamp = self._watermark.last
        return [[(value, stamp) for value in own] for own in super().values(subject, triples)]


def is_star(key: PatternKey) -> bool:
    """True if a `StarMatcher` takes these patterns (two or more)."""
    subjects = {pattern[0] for pattern in key.patterns}
    predicates = [pattern[1] for pattern in key.patterns]
    return (
        len(key.patterns) > 1
        and len(subjects) == 1
        and all(not variable for variable, _ in predicates)
        and len(set(predicates)) == len(predicates)
    )


# What goes with triple patterns, found by their constants.

ItemT = TypeVar("ItemT")


class ByConstants(Generic[ItemT]):
    """Items by the patterns that a triple may match, but for repeated variables.

    A lookup costs as many results, and combinations of constant positions, as there are.

    Attributes:
        of_predicates: items of patterns of which only the predicate is constant.
        of_masks: others, by their constant positions.
    """

    def __init__(self) -> None:
        self.of_predicates: dict[TermId, list[ItemT]] = {}
        self.of_masks: dict[tuple[bool, bool, bool], dict[Mask, list[ItemT]]] = {}

    def add(self, mask: Mask, item: ItemT) -> None:
        subject, predicate, object_ = mask
        if predicate is not None and subject is None and object_ is None:
            self.of_predicates.setdefault(predicate, []).append(item)
        else:
            table = self.of_masks.setdefault(_places(mask), {})
            table.setdefault(mask, []).append(item)

    def remove(self, mask: Mask, item: ItemT) -> None:
        """Remove an item; iterations over results go on."""
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
        """Return the items of the patterns that a triple may match."""
        of_predicate = self.of_predicates.get(triple[1], [])
        if not self.of_masks:
            return of_predicate
        result = of_predicate[:]
        for positions, table in self.of_masks.items():
            mask = (
                triple[0] if positions[0] else None,
                triple[1] if positions[1] else None,
                triple[2] if positions[2] else None,
            )
            result += table.get(mask, ())
        return result


def _places(mask: Mask) -> tuple[bool, bool, bool]:
    return mask[0] is not None, mask[1] is not None, mask[2] is not None
