"""Forget the terms of the table that nothing holds: mark and sweep.

A stream brings new terms for ever, and expressions make more. What still matters of them is what
the operators remember: rows in windows and indexes, groups, values in an order. All of that is
reached from the plans, whatever an operator keeps it in, because Python knows what every object
refers to (`gc.get_referents`). Every integer that is met counts as a term: one that is not (a
count, a timestamp) may keep a term that has the same number, at most one for each integer that is
there, and never lose one. What was computed once and remembered (see `Remembered`) holds nothing.

To look costs as much as there is to look at, so it is done when the table has grown by a share of
that. Terms of static data and of queries come seldom: those are looked through when they have
doubled, and when queries are closed.
"""

import gc
import sys
from collections.abc import Iterable
from itertools import chain
from types import ModuleType
from typing import Final, Protocol

from tpf_client.dataflow.changes import TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.expressions.typed_terms import Remembered

_LEAST: Final = 10_000
"""So many new terms are always allowed."""
_SHARE: Final = 8
"""A new term is allowed for so many objects that must be looked at."""


class _Holder(Protocol):
    """An engine: who holds terms."""

    def holders(self) -> Iterable[object]:
        """Whatever holds terms, or leads to who does."""

    def static_holders(self) -> Iterable[object]:
        """Objects that hold terms of static data only; they are not searched each time."""

    def apart(self) -> Iterable[object]:
        """Objects where the search stops."""


class Forgetting:
    """Forgets the terms of the engines that share a table.

    Attributes:
        engines: that use it.
    """

    def __init__(self, dictionary: TermDictionary) -> None:
        self.engines: list[_Holder] = []
        self._dictionary = dictionary
        self._passing = self._lasting = _LEAST
        self._running = self._closed = 0

    def opened(self) -> None:
        """A query was registered: its terms, and those of its static data, are no growth."""
        self._running += 1
        self._lasting = max(self._lasting, 2 * self._dictionary.lasting + _LEAST)

    def closed(self) -> None:
        """A query was closed; where that were many of those that run, their terms go."""
        self._running -= 1
        self._closed += 1
        if self._closed >= self._running:
            self.sweep(everything=True)

    def sweep_where_due(self) -> None:
        """Forget, if the table has grown enough for that."""
        if self._dictionary.lasting > self._lasting:
            self.sweep(everything=True)
        elif self._dictionary.passing > self._passing:
            self.sweep()

    def sweep(self, *, everything: bool = False) -> int:
        """Forget what nothing holds; returns how many terms.

        No integer of a term may be on its way from one holder to another.

        Args:
            everything: terms of static data and of queries, too.
        """
        dictionary, engines = self._dictionary, self.engines
        apart = [dictionary, *dictionary.tables, *chain(*(each.apart() for each in engines))]
        if not everything:
            apart += chain(*(each.static_holders() for each in engines))
        held, looked_at = reached(chain(*(each.holders() for each in engines)), apart)
        dropped = dictionary.forget(held, everything=everything)
        more = looked_at // _SHARE + _LEAST
        self._passing = 2 * dictionary.passing + more
        if everything:
            self._closed = 0
            self._lasting = 2 * dictionary.lasting + more
        return dropped


def reached(roots: Iterable[object], apart: Iterable[object]) -> tuple[set[TermId], int]:
    """The integers that objects refer to, over any others.

    Args:
        roots: where to begin.
        apart: where not to go on; also not through classes and modules.

    Returns:
        The integers, and how many objects there were.
    """
    seen = {id(getattr(module, "__dict__", None)) for module in tuple(sys.modules.values())}
    seen.update(map(id, apart))
    held: set[TermId] = set()
    looked_at = 0
    rest: list[object] = [each for each in roots if id(each) not in seen]
    while rest:
        following: list[object] = []
        for each in gc.get_referents(*rest):
            kind = type(each)
            if kind is int:
                held.add(each)
            elif kind is tuple:
                # Most are rows: to look at one again costs less than to remember it.
                following.append(each)
            elif kind is not str and id(each) not in seen:
                seen.add(id(each))
                if not isinstance(each, (type, ModuleType, Remembered)):
                    following.append(each)
        looked_at += len(following)
        rest = following
    return held, looked_at
