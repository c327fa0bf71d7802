"""Postings: from a term to the slots in which it occurs, compact for the many terms with few."""

from collections.abc import Collection, Iterator

_FEW = 16

_Posting = int | tuple[int, ...] | set[int]


class Postings:
    """Sets of slots by term. One slot is kept as itself, a few as a tuple, many as a set."""

    def __init__(self) -> None:
        self._slots: dict[int, _Posting] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots)

    def get(self, term: int) -> Collection[int]:
        """The slots of a term; do not change it, nor keep it."""
        posting = self._slots.get(term, ())
        return (posting,) if isinstance(posting, int) else posting

    def add(self, term: int, slot: int) -> None:
        """A slot in which the term occurs; nothing happens where it is known."""
        posting = self._slots.get(term)
        if posting is None:
            self._slots[term] = slot
        elif isinstance(posting, set):
            posting.add(slot)
        elif isinstance(posting, int):
            if posting != slot:
                self._slots[term] = (posting, slot)
        elif slot not in posting:
            more = (*posting, slot)
            self._slots[term] = more if len(more) <= _FEW else set(more)

    def discard(self, term: int, slot: int) -> None:
        """The term no longer occurs in the slot."""
        posting = self._slots.get(term)
        if isinstance(posting, set):
            posting.discard(slot)
            rest: _Posting = posting if len(posting) > _FEW // 2 else tuple(posting)
        elif isinstance(posting, tuple):
            rest = tuple(one for one in posting if one != slot)
        else:
            rest = () if posting == slot or posting is None else posting
        if isinstance(rest, tuple) and len(rest) < 2:
            if rest:
                self._slots[term] = rest[0]
            else:
                self._slots.pop(term, None)
        else:
            self._slots[term] = rest
