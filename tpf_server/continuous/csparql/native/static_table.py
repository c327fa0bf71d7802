"""The static triples that match a pattern: those that somebody looks up, or all."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from annotations.terms import Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_server.continuous.engine.static.static_cache import LOOKUP_COST, Preparation, read_at_most
from tpf_server.continuous.engine.static.static_data import Dataset, GraphChange, StaticData, agrees
from tpf_server.continuous.engine.windows.matchers import EncodedTriple

# Rows of a table by values of some variables: what a join looks up, kept while it is needed.

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
        key: these places; of one the value itself is the key, of more a tuple.

    Attributes:
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
        """Look up again what is needed; gives what is new, see `change`."""
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


_Places: TypeAlias = tuple[int, ...]
_Told: TypeAlias = tuple[int, Callable[..., None], Sequence[tuple[Any, ...]]]
"""Where somebody is in the order of joins, how he is told of a change, and what he is told."""


class TableUser(Protocol):
    """Who needs all rows."""

    def static_change(self, row: Solution, count: int) -> None:
        """A row came or went; all tables are as they will be."""


class StaticTable:
    """The static triples that match a pattern, as rows of its variables.

    All of them are read for who needs all, and where they are few; others are looked up.

    Attributes:
        users: who is told of all changes, and where they are in the order of joins of a query.
    """

    def __init__(
        self,
        pattern: QuadPattern,
        dataset: Dataset,
        dictionary: TermDictionary,
        idle: Callable[[], object],
    ) -> None:
        self.all: set[Solution] = set()
        self.users: dict[TableUser, int] = {}
        self._whole = False
        self._more_than = 0
        self._pattern = pattern
        self._dataset = dataset
        self._dictionary = dictionary
        self._idle = idle
        self._indexes: dict[tuple[_Places, _Places], StaticIndex] = {}
        names = dict.fromkeys(term for term in pattern[:3] if is_variable(term))
        self._places = [pattern.index(name) for name in names]
        constants = [Term(term) for term in pattern[:3] if not is_variable(term)]
        self._constants = tuple([dictionary.encode(each) for each in constants])
        order = [*names, *constants]
        self._triple = itemgetter(*(order.index(term) for term in pattern[:3]))

    @property
    def holders(self) -> Iterable[object]:
        """What holds terms of static data alone.

        A part that was looked up does not: its terms may come with streams, and go.
        """
        yield from (self, self.all, self._indexes)
        if self._whole:
            yield from self._indexes.values()

    @property
    def used(self) -> bool:
        """Whether anybody uses it."""
        return bool(self.users or self._indexes)

    def follow(self, user: TableUser, place: int) -> None:
        """Somebody needs all rows from now on."""
        self.users[user] = place
        self.read()

    def index(
        self, key: _Places, rest: _Places, user: IndexUser, place: int, most: int
    ) -> StaticIndex:
        """Somebody looks rows up from now on; see `StaticIndex`."""
        self.read(most)
        found = self._indexes.get((key, rest))
        if found is None:
            found = self._indexes[key, rest] = StaticIndex(self, key, rest)
            if self._whole:
                found.fill(self.all)
        found.users[user] = place
        return found

    def leave(self, user: Any) -> None:
        """Somebody does not use it any more; nothing happens where he did not."""
        left = self.users.pop(user, None) is not None
        for places, index in tuple(self._indexes.items()):
            if index.users.pop(user, None) is not None:
                left = True
                if not index.users:
                    del self._indexes[places]
        if left and not self.used:
            self._idle()

    def triple(self, row: Solution) -> EncodedTriple:
        """The triple that a row is of."""
        found: EncodedTriple = self._triple(row + self._constants)
        return found

    def rows(self, bound: Bound) -> Iterator[Solution]:
        """See `IndexSource`."""
        return self._encoded(self._dataset.match(self._with(bound)))

    def read(self, most: int | None = None) -> None:
        """See `IndexSource`."""
        if self._whole or (
            most is not None
            and (most <= self._more_than or self._dataset.count(self._pattern) > most)
        ):
            return
        quads: Iterable[Quad] = self._dataset.match(self._pattern)
        if most is not None:
            found = read_at_most(quads, most)
            if found is None:
                # Counts are estimates.
                self._more_than = most
                return
            quads = found
        with self._dictionary.keeping():
            self.all.update(self._encoded(quads))
        self._whole = True
        for index in self._indexes.values():
            index.fill(self.all)

    def ask(self, prepared: Preparation) -> None:
        """Its graphs are about to change: say what is to be prepared."""
        asked: list[Bound] = []
        if self._whole:
            asked.append({})
        else:
            for index in self._indexes.values():
                index.let_go()
                asked += index.asked()
        for bound in asked:
            prepared.ask(self._dataset, (self._with(bound),))

    def change(self, change: GraphChange) -> list[_Told]:
        """Its graphs have changed: take that over; gives who is to be told of it."""
        known = partial(self._known, change.prepared)
        told: list[_Told] = []
        if change.triples is None and not self._whole:
            for index in self._indexes.values():
                told += _told(index.users, index.refresh(known))
            return told
        changes = known({}) if change.triples is None else self._current(change.triples)
        if changes is None:
            now = set(self.rows({}))
            changes = [(row, False) for row in self.all - now]
            changes += [(row, True) for row in now - self.all]
        if self._whole:
            new = [
                (row, 1 if there else -1) for row, there in changes if there != (row in self.all)
            ]
            for row, count in new:
                (self.all.add if count > 0 else self.all.remove)(row)
            told += _told(self.users, new)
        for index in self._indexes.values():
            told += _told(index.users, index.change(changes))
        return told

    def _current(self, triples: Iterable[tuple[Term, Term, Term]]) -> list[RowChange]:
        """Those of some triples that match, and whether they are there now."""
        quads = [quad for each in triples if agrees(self._pattern, quad := Quad(*each))]
        return list(zip(self._encoded(quads), map(self._dataset.has, quads), strict=True))

    def _known(self, prepared: Preparation | None, bound: Bound) -> list[RowChange] | None:
        """What was prepared: the changes of rows with these values; ``None``: nothing was."""
        if prepared is None:
            return None
        found = prepared.difference(self._dataset, (self._with(bound),))
        if found is None:
            return None
        schema, come, gone = found
        places = [int(name[1:]) for name in schema]
        encode = self._dictionary.encode
        changes: list[RowChange] = []
        for rows, there in ((gone, False), (come, True)):
            for terms in rows:
                values = {**bound, **dict(zip(places, map(encode, terms), strict=True))}
                changes.append((tuple([values[k] for k in range(len(self._places))]), there))
        return changes

    def _encoded(self, quads: Iterable[Quad]) -> Iterator[Solution]:
        encode, places = self._dictionary.encode, self._places
        return (tuple([encode(quad[place]) for place in places]) for quad in quads)

    def _with(self, bound: Bound) -> QuadPattern:
        """The pattern with these values."""
        decode = self._dictionary.decode
        terms = {Variable(f"?{place}"): decode(value) for place, value in bound.items()}
        s, p, o = (terms.get(Variable(term), term) for term in self._pattern[:3])
        return QuadPattern(s, p, o)


UserT = TypeVar("UserT", TableUser, IndexUser)


def _told(users: Mapping[UserT, int], new: Sequence[tuple[Any, ...]]) -> list[_Told]:
    return [(place, user.static_change, new) for user, place in users.items()] if new else []


# The static triples that match patterns: once for all queries that ask for them.
#
# A query keeps of them what it has found partners for. Where it has nothing to look them up by, it
# keeps a copy of its own.


class StaticTables:
    """The tables of an engine."""

    def __init__(self, static: StaticData, dictionary: TermDictionary) -> None:
        self.static = static
        self._dictionary = dictionary
        self._tables: dict[tuple[QuadPattern, tuple[Term, ...]], StaticTable] = {}

    def table(self, pattern: QuadPattern, graphs: tuple[Term, ...]) -> StaticTable:
        """The triples that match a pattern in the merge of these graphs."""
        names: dict[str, Variable] = {}
        s, p, o = (
            names.setdefault(term, Variable(f"?{len(names)}")) if is_variable(term) else term
            for term in pattern[:3]
        )
        key = QuadPattern(s, p, o), graphs
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = StaticTable(
                key[0],
                Dataset(self.static, graphs),
                self._dictionary,
                lambda: self._tables.pop(key, None),
            )
        return found

    def ask(self, change: GraphChange) -> None:
        """Static graphs are about to change: say what is to be prepared."""
        if change.prepared is not None:
            for table in self._concerned(change):
                table.ask(change.prepared)

    def change(self, change: GraphChange) -> None:
        """Static graphs have changed.

        First all tables change, then joins are told, the last of a query before those that feed it.
        So each meets what it held before with what is new, and what then comes from below, also by
        keys that are looked up only now, with the tables as they are.
        """
        told = [each for table in self._concerned(change) for each in table.change(change)]
        for _, tell, new in sorted(told, key=itemgetter(0), reverse=True):
            for each in new:
                tell(*each)

    def _concerned(self, change: GraphChange) -> list[StaticTable]:
        return [
            table
            for (_, graphs), table in self._tables.items()
            if not set(graphs).isdisjoint(change.graphs)
        ]

    def drop_idle(self) -> None:
        """Let go of tables that nobody has used: their query could not be made."""
        for key in [key for key, table in self._tables.items() if not table.used]:
            del self._tables[key]

    def __iter__(self) -> Iterator[StaticTable]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)
