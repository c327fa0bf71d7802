"""Tables of static triples that match a pattern, whole or by looked-up keys."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_server.continuous.runtime.static.service_clauses import numbered
from tpf_server.continuous.runtime.static.static_cache import LOOKUP_COST, Preparation, read_at_most
from tpf_server.continuous.runtime.static.static_data import (
    Dataset,
    GraphChange,
    StaticData,
    agrees,
)
from tpf_server.continuous.runtime.windows.matchers import EncodedTriple

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
    """A join that looks rows up."""

    @property
    def keys(self) -> Collection[Any]:
        """Keys whose changes it must hear of."""

    def static_change(self, key: Any, rest: Solution, count: int) -> None:
        """A row came or went; all tables are up to date."""


class StaticIndex(dict[Any, _Rests]):
    """Rows of a table by the values of some columns.

    A key is looked up with its first use, and followed as long as a user has partners for it. A
    whole table has all keys.
    """

    def __init__(self, source: "StaticTable", key: tuple[int, ...], rest: tuple[int, ...]) -> None:
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
        rests = self[key] = self._rests(self._source.rows(self._bound(key)))
        self._size += 1 + len(rests)
        return rests

    def let_go(self) -> None:
        needed: set[Any] = set()
        for user in self.users:
            needed.update(user.keys)
        for key in [each for each in self if each not in needed]:
            del self[key]
        self._size = len(self) + sum(map(len, self.values()))
        self._limit = max(_LEAST, 2 * self._size)

    def fill(self, rows: Iterable[Solution]) -> None:
        self.whole = True
        self.clear()
        for row in rows:
            self.setdefault(self._key(row), {})[self._rest_of(row)] = None

    def asked(self) -> Iterator[Bound]:
        return map(self._bound, self)

    def refresh(self, prepared_changes: Callable[[Bound], Iterable[RowChange] | None]) -> _New:
        """Look all keys up again; give the delta."""
        new: _New = []
        self.let_go()
        for key, before in list(self.items()):
            bound = self._bound(key)
            changes = prepared_changes(bound)
            if changes is not None:
                new += self.change(changes)
                continue
            now = self[key] = self._rests(self._source.rows(bound))
            new += [(key, rest, -1) for rest in before if rest not in now]
            new += [(key, rest, 1) for rest in now if rest not in before]
        return new

    def change(self, changes: Iterable[RowChange]) -> _New:
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
        return tuple([row[index] for index in self._rest])

    def _rests(self, rows: Iterable[Solution]) -> _Rests:
        return dict.fromkeys(map(self._rest_of, rows))


_Places: TypeAlias = tuple[int, ...]
_Notice: TypeAlias = tuple[int, Callable[..., None], Sequence[tuple[Any, ...]]]
"""Where somebody is in the order of joins, how he is told of a change, and what he is told."""


class TableUser(Protocol):
    """A node that needs all rows."""

    def static_change(self, row: Solution, count: int) -> None:
        """A row came or went; all tables are up to date."""


class StaticTable:
    """The static matches of a pattern, as rows of its variables.

    It is read whole where a user needs that or it is small; otherwise keys are looked up.
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
        """Return holders of static terms alone.

        Those of looked-up parts may come with streams, and go.
        """
        yield from (self, self.all, self._indexes)
        if self._whole:
            yield from self._indexes.values()

    @property
    def used(self) -> bool:
        return bool(self.users or self._indexes)

    def follow(self, user: TableUser, position: int) -> None:
        self.users[user] = position
        self.read()

    def index(
        self, key: _Places, rest: _Places, user: IndexUser, position: int, most: int
    ) -> StaticIndex:
        """Add a user of an index; up to `most` triples are read whole."""
        self.read(most)
        index = self._indexes.get((key, rest))
        if index is None:
            index = self._indexes[key, rest] = StaticIndex(self, key, rest)
            if self._whole:
                index.fill(self.all)
        index.users[user] = position
        return index

    def leave(self, user: Any) -> None:
        left = self.users.pop(user, None) is not None
        for positions, index in tuple(self._indexes.items()):
            if index.users.pop(user, None) is not None:
                left = True
                if not index.users:
                    del self._indexes[positions]
        if left and not self.used:
            self._idle()

    def triple(self, row: Solution) -> EncodedTriple:
        result: EncodedTriple = self._triple(row + self._constants)
        return result

    def rows(self, bound: Bound) -> Iterator[Solution]:
        return self._encoded(self._dataset.match(self._with(bound)))

    def read(self, most: int | None = None) -> None:
        if self._whole or (
            most is not None
            and (most <= self._more_than or self._dataset.count(self._pattern) > most)
        ):
            return
        quads: Iterable[Quad] = self._dataset.match(self._pattern)
        if most is not None:
            result = read_at_most(quads, most)
            if result is None:
                # Counts are estimates.
                self._more_than = most
                return
            quads = result
        with self._dictionary.permanently():
            self.all.update(self._encoded(quads))
        self._whole = True
        for index in self._indexes.values():
            index.fill(self.all)

    def ask(self, prepared: Preparation) -> None:
        """Say what to prepare before its graphs change."""
        asked: list[Bound] = []
        if self._whole:
            asked.append({})
        else:
            for index in self._indexes.values():
                index.let_go()
                asked += index.asked()
        for bound in asked:
            prepared.ask(self._dataset, (self._with(bound),))

    def change(self, change: GraphChange) -> list[_Notice]:
        """Apply a change of its graphs; give users and their deltas."""
        prepared_changes = partial(self._known, change.prepared)
        notices: list[_Notice] = []
        if change.triples is None and not self._whole:
            for index in self._indexes.values():
                notices += _notices(index.users, index.refresh(prepared_changes))
            return notices
        changes = prepared_changes({}) if change.triples is None else self._current(change.triples)
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
            notices += _notices(self.users, new)
        for index in self._indexes.values():
            notices += _notices(index.users, index.change(changes))
        return notices

    def _current(self, triples: Iterable[tuple[Term, Term, Term]]) -> list[RowChange]:
        """The matching triples, and which of them are there now."""
        quads = [quad for each in triples if agrees(self._pattern, quad := Quad(*each))]
        return list(zip(self._encoded(quads), map(self._dataset.has, quads), strict=True))

    def _known(self, prepared: Preparation | None, bound: Bound) -> list[RowChange] | None:
        """Prepared changes of rows with these values, if any."""
        if prepared is None:
            return None
        result = prepared.difference(self._dataset, (self._with(bound),))
        if result is None:
            return None
        schema, come, gone = result
        positions = [int(name[2:]) for name in schema]
        encode = self._dictionary.encode
        changes: list[RowChange] = []
        for rows, there in ((gone, False), (come, True)):
            for terms in rows:
                values = {**bound, **dict(zip(positions, map(encode, terms), strict=True))}
                changes.append((tuple([values[k] for k in range(len(self._places))]), there))
        return changes

    def _encoded(self, quads: Iterable[Quad]) -> Iterator[Solution]:
        encode, positions = self._dictionary.encode, self._places
        return (tuple([encode(quad[index]) for index in positions]) for quad in quads)

    def _with(self, bound: Bound) -> QuadPattern:
        decode = self._dictionary.decode
        terms = {Variable(f"?v{index}"): decode(value) for index, value in bound.items()}
        s, p, o = (terms.get(Variable(term), term) for term in self._pattern[:3])
        return QuadPattern(s, p, o)


UserT = TypeVar("UserT", TableUser, IndexUser)


def _notices(users: Mapping[UserT, int], new: Sequence[tuple[Any, ...]]) -> list[_Notice]:
    return [(index, user.static_change, new) for user, index in users.items()] if new else []


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
        """The table of a pattern in the merge of static graphs."""
        (plain,) = numbered([pattern._replace(graph=DEFAULT_GRAPH)])
        key = plain, graphs
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = StaticTable(
                plain,
                Dataset(self.static, graphs),
                self._dictionary,
                lambda: self._tables.pop(key, None),
            )
        return table

    def ask(self, change: GraphChange) -> None:
        """Say what to prepare before graphs change."""
        if change.prepared is not None:
            for table in self._concerned(change):
                table.ask(change.prepared)

    def change(self, change: GraphChange) -> None:
        """Apply a change of graphs.

        First all tables change, then joins, the last of a query first. So each meets its old state
        with the delta, and later the deltas from below with tables that are up to date.
        """
        notices = [each for table in self._concerned(change) for each in table.change(change)]
        for _, tell, new in sorted(notices, key=itemgetter(0), reverse=True):
            for each in new:
                tell(*each)

    def _concerned(self, change: GraphChange) -> list[StaticTable]:
        return [
            table
            for (_, graphs), table in self._tables.items()
            if not set(graphs).isdisjoint(change.graphs)
        ]

    def drop_idle(self) -> None:
        """Drop tables of a query that could not be made."""
        for key in [key for key, table in self._tables.items() if not table.used]:
            del self._tables[key]

    def __iter__(self) -> Iterator[StaticTable]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)
