"""Rows of a table by values of some variables: what a join looks up, kept while it is needed."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias

from tpf_client.dataflow.changes import Solution, TermId
from tpf_server.continuous.engine.static.static_bgp import LOOKUP_COST

_LEAST: Final = 4096
"""So many keys and rows stay, whether anybody needs them or not."""

RowChange: TypeAlias = tuple[Solution, bool]
"""A row, and whether it is there now."""
Bound: TypeAlias = Mapping[int, TermId]
"""The values at some places of rows."""
_New: TypeAlias = list[tuple[Any, Solution, int]]
_Rests: TypeAlias = dict[Solution, None]
_NOTHING: Final[_Rests] = {}


class IndexUser(Protocol):
    """Who looks rows up."""

    @property
    def keys(self) -> Collection[Any]:
        """Those that it must be told of when rows come or go."""

    def static_change(self, key: Any, rest: Solution, count: int) -> None:
        """A row came or went; all tables are as they will be."""


class IndexSource(Protocol):
    """The table of an index."""

    def rows(self, bound: Bound) -> Iterable[Solution]:
        """Look up the rows with these values."""

    def read(self, most: int | None = None) -> None:
        """Read all rows, and fill all indexes; nothing happens where there are more than `most`."""


class StaticIndex(dict[Any, _Rests]):
    """The rows of a table by their values at some places.

    A key is looked up when it is asked for first. It stays for a while, and as long as a user has
    something to join with it: then it follows what changes. Of a key that is not here no user has
    anything, so nobody need be told. Where all rows are read it has all keys that there are.

    Args:
        source: the table.
        key: these places; of one the value itself is the key, of more a tuple.
        rest: the places of what is wanted of the rows.

    Attributes:
        whole: whether it has all keys.
        users: who is told of changes, and where they are in the order of joins of a query.
    """

    def __init__(self, source: IndexSource, key: tuple[int, ...], rest: tuple[int, ...]) -> None:
        super().__init__()
        self.whole = False
        self.users: dict[IndexUser, int] = {}
        self._source = source
        self._places = key
        self._key = itemgetter(*key)
        self._rest = rest
        self._size = 0
        self._limit = _LEAST

    def __missing__(self, key: Any) -> _Rests:
        if self.whole:
            return _NOTHING
        if self._size > self._limit:
            self.let_go()
            # Where so many are needed, reading everything costs no more.
            self._source.read(LOOKUP_COST * len(self))
            return self[key]
        found = self[key] = self._rests(self._source.rows(self._bound(key)))
        self._size += 1 + len(found)
        return found

    def let_go(self) -> None:
        """Forget the keys that nobody needs."""
        needed: set[Any] = set()
        for user in self.users:
            needed.update(user.keys)
        for key in [each for each in self if each not in needed]:
            del self[key]
        self._size = len(self) + sum(map(len, self.values()))
        self._limit = max(_LEAST, 2 * self._size)

    def fill(self, rows: Iterable[Solution]) -> None:
        """These are all rows that there are."""
        self.whole = True
        self.clear()
        for row in rows:
            self.setdefault(self._key(row), {})[self._rest_of(row)] = None

    def asked(self) -> Iterator[Bound]:
        """The values that the rows of its keys have in common."""
        return map(self._bound, self)

    def refresh(self, known: Callable[[Bound], Iterable[RowChange] | None]) -> _New:
        """Look up again what is needed; gives what is new, see `change`.

        Args:
            known: what has changed of the rows with some values; ``None`` where that is not known.
        """
        new: _New = []
        self.let_go()
        for key, before in list(self.items()):
            bound = self._bound(key)
            found = known(bound)
            if found is not None:
                new += self.change(found)
                continue
            now = self[key] = self._rests(self._source.rows(bound))
            new += [(key, rest, -1) for rest in before if rest not in now]
            new += [(key, rest, 1) for rest in now if rest not in before]
        return new

    def change(self, changes: Iterable[RowChange]) -> _New:
        """Take over changes; gives what is new to it, as users are told of it."""
        new: _New = []
        for row, there in changes:
            key, rest = self._key(row), self._rest_of(row)
            rests = self.get(key)
            if rests is None:
                if not (there and self.whole):
                    continue
                rests = self[key] = {}
            if there == (rest in rests):
                continue
            if there:
                rests[rest] = None
            else:
                del rests[rest]
                if self.whole and not rests:
                    del self[key]
            new.append((key, rest, 1 if there else -1))
        return new

    def _bound(self, key: Any) -> Bound:
        values = key if len(self._places) > 1 else (key,)
        return dict(zip(self._places, values, strict=True))

    def _rest_of(self, row: Solution) -> Solution:
        return tuple([row[place] for place in self._rest])

    def _rests(self, rows: Iterable[Solution]) -> _Rests:
        return dict.fromkeys(map(self._rest_of, rows))
