"""The static triples that match a pattern: those that somebody looks up, or all."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Protocol, TypeAlias, TypeVar

from annotations.terms import Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_server.continuous.csparql.native.static_index import (
    Bound,
    IndexUser,
    RowChange,
    StaticIndex,
)
from tpf_server.continuous.engine.static.dataset import Dataset, agrees
from tpf_server.continuous.engine.static.preparation import Preparation
from tpf_server.continuous.engine.static.static_bgp import read_at_most
from tpf_server.continuous.engine.static.static_data import GraphChange
from tpf_server.continuous.engine.windows.matchers import EncodedTriple

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

    Args:
        pattern: its variables are ``?0``, ``?1``, ...
        dataset: whose default graph they are in.
        dictionary: the integers of terms.
        idle: is called when nobody uses the table any more.

    Attributes:
        all: the rows, where all were read.
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
        """Somebody looks rows up from now on; see `StaticIndex`.

        Args:
            key: see there.
            rest: see there.
            user: who it is.
            place: where he is in the order of joins of his query.
            most: of so many triples all are read now.
        """
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
