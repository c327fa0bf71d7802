"""Forget the terms of the table that nothing holds: mark and sweep.

Operators hold the terms in use, all reachable from the plans by `gc.get_referents`. Every integer
that is met counts as a term, so that none is lost; values in `Remembered` hold nothing. A sweep
waits until the table has grown by a share of the objects to traverse; terms of static data and
queries, until they have doubled or queries close.
"""

import gc
import sys
from collections.abc import Iterable
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
    def holders(self) -> Iterable[object]:
        """Return the objects that hold terms, or lead to them."""

    def static_holders(self) -> Iterable[object]:
        """Return objects with terms of static data only; they are not searched each time."""

    def apart(self) -> Iterable[object]:
        """Return objects where the search stops."""


class Forgetting:
    """Forget the terms of an engine."""

    def __init__(self, dictionary: TermDictionary, holder: _Holder) -> None:
        self._holder = holder
        self._dictionary = dictionary
        self._passing = self._lasting = _LEAST
        self._running = self._closed = 0

    def opened(self) -> None:
        """Note a new query: its terms, and those of its static data, are no growth."""
        self._running += 1
        self._lasting = max(self._lasting, 2 * self._dictionary.lasting + _LEAST)

    def closed(self) -> None:
        """Note a closed query; where many were closed, forget their terms."""
        self._running -= 1
        self._closed += 1
        if self._closed >= self._running:
            self.sweep(everything=True)

    def sweep_where_due(self) -> None:
        """Sweep if the table has grown enough."""
        if self._dictionary.lasting > self._lasting:
            self.sweep(everything=True)
        elif self._dictionary.passing > self._passing:
            self.sweep()

    def sweep(self, *, everything: bool = False) -> int:
        """Forget the terms that nothing holds; return how many.

        No term may be on its way between holders. `everything` includes static data and queries.
        """
        dictionary, holder = self._dictionary, self._holder
        apart = [dictionary, *dictionary.tables, *holder.apart()]
        if not everything:
            apart += holder.static_holders()
        held, looked_at = reached(holder.holders(), apart)
        dropped = dictionary.forget(held, everything=everything)
        more = looked_at // _SHARE + _LEAST
        self._passing = 2 * dictionary.passing + more
        if everything:
            self._closed = 0
            self._lasting = 2 * dictionary.lasting + more
        return dropped


def reached(roots: Iterable[object], apart: Iterable[object]) -> tuple[set[TermId], int]:
    """Return the integers that objects refer to, over any others, and the number of objects.

    The search stops at `apart`, classes and modules.
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
