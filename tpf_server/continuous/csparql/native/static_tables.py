"""The static triples that match a pattern: read and indexed once for all queries that ask for them.

A query keeps of them what it has found partners for. Where it has nothing to look them up by, it
keeps a copy of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Protocol, TypeAlias

from annotations.terms import Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.hash_join import HashJoin
from tpf_server.continuous.engine.static.dataset import Dataset, agrees
from tpf_server.continuous.engine.static.static_data import GraphChange, StaticData
from tpf_server.continuous.engine.windows.matchers import EncodedTriple

RowOfTriple: TypeAlias = Callable[[EncodedTriple], Solution | None]
_Index: TypeAlias = Mapping[Any, Mapping[Solution, int]]
_Places: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


class User(Protocol):
    """Whoever is told when the static triples change."""

    def look(self, triple: EncodedTriple, count: int) -> None:
        """A triple comes or goes; the table is as before."""

    def push(self, triple: EncodedTriple, count: int) -> None:
        """A triple came or went; the table is as it will be."""


class StaticTable:
    """The static triples that match a pattern.

    Args:
        row_of: the row of the pattern that a triple gives; ``None`` where it does not match.
        read: reads them.
        idle: is called when nobody uses the table any more.

    Attributes:
        triples: see above.
        users: who is told of changes, those of a query in the order of its joins.
    """

    def __init__(
        self,
        row_of: RowOfTriple,
        read: Callable[[], Iterable[EncodedTriple]],
        idle: Callable[[], object],
    ) -> None:
        self.triples: set[EncodedTriple] = set()
        self.users: dict[User, None] = {}
        self._row_of = row_of
        self._read = read
        self._idle = idle
        self._indexes: dict[_Places, dict[Any, dict[Solution, int]]] = {}
        self.refresh()

    @property
    def holders(self) -> Iterable[object]:
        """All that holds its terms."""
        return self, self.triples, self._indexes, *self._indexes.values()

    def leave(self, user: User) -> None:
        """Somebody does not use it any more; nothing happens where he did not."""
        if user in self.users:
            del self.users[user]
            if not self.users:
                self._idle()

    def index(self, key: tuple[int, ...], rest: tuple[int, ...]) -> _Index:
        """Rows of the pattern by their values at some places.

        Args:
            key: these places; of one the value itself is the key, of more a tuple.
            rest: the places of what is wanted of the rows.
        """
        found = self._indexes.get((key, rest))
        if found is None:
            found = self._indexes[key, rest] = {}
            for triple in self.triples:
                self._change(found, key, rest, triple, 1)
        return found

    def _change(
        self,
        index: dict[Any, dict[Solution, int]],
        key: tuple[int, ...],
        rest: tuple[int, ...],
        triple: EncodedTriple,
        count: int,
    ) -> None:
        row = self._row_of(triple)
        assert row is not None
        value = itemgetter(*key)(row)
        bucket = index.setdefault(value, {})
        wanted = tuple([row[place] for place in rest])
        if count > 0:
            bucket[wanted] = 1
        else:
            del bucket[wanted]
            if not bucket:
                del index[value]

    def refresh(self) -> None:
        """Read the static data (again), and tell the users what changed."""
        now = {each for each in self._read() if self._row_of(each) is not None}
        before = self.triples
        self._change_to([(each, -1) for each in before - now], [(each, 1) for each in now - before])

    def change(self, triples: Iterable[tuple[EncodedTriple, bool]]) -> None:
        """Some triples are there now, or are not; nothing else has changed."""
        gone: list[tuple[EncodedTriple, int]] = []
        new: list[tuple[EncodedTriple, int]] = []
        for triple, there in triples:
            if there != (triple in self.triples):
                (new if there else gone).append((triple, 1 if there else -1))
        self._change_to(gone, new)

    def _change_to(
        self, gone: list[tuple[EncodedTriple, int]], new: list[tuple[EncodedTriple, int]]
    ) -> None:
        """Change the table, and tell the users."""
        changes = gone + new
        if not changes:
            return
        users = tuple(self.users)
        for user in users:
            for triple, count in changes:
                user.look(triple, count)
        for triple, _ in gone:
            self.triples.remove(triple)
        self.triples.update(triple for triple, _ in new)
        for (key, rest), index in self._indexes.items():
            for triple, count in changes:
                self._change(index, key, rest, triple, count)
        for user in users:
            for triple, count in changes:
                user.push(triple, count)


class StaticTables:
    """The tables of an engine.

    Args:
        static: the static data.
        dictionary: the integers of terms.
    """

    def __init__(self, static: StaticData, dictionary: TermDictionary) -> None:
        self.static = static
        self._dictionary = dictionary
        self._tables: dict[tuple[QuadPattern, tuple[Term, ...]], StaticTable] = {}

    def table(
        self, pattern: QuadPattern, graphs: tuple[Term, ...], row_of: RowOfTriple
    ) -> StaticTable:
        """The triples that match a pattern in the merge of these graphs.

        Args:
            pattern: its own graph does not matter.
            graphs: names of static graphs.
            row_of: the row that a triple gives; ``None`` where it does not match.
        """
        names: dict[str, Variable] = {}
        s, p, o = (
            names.setdefault(term, Variable(f"?{len(names)}")) if is_variable(term) else term
            for term in pattern[:3]
        )
        key = QuadPattern(s, p, o), graphs
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = StaticTable(
                row_of, lambda: self._read(*key), lambda: self._tables.pop(key, None)
            )
        return found

    def _read(self, pattern: QuadPattern, graphs: tuple[Term, ...]) -> Iterable[EncodedTriple]:
        if graphs:
            encode = self._dictionary.encode
            for quad in Dataset(self.static, graphs).match(pattern):
                yield encode(quad.subject), encode(quad.predicate), encode(quad.object)

    def ask(self, change: GraphChange) -> None:
        """Static graphs are about to change: say what is to be prepared."""
        if change.prepared is not None:
            for pattern, graphs in self._tables:
                if not set(graphs).isdisjoint(change.graphs):
                    change.prepared.ask(Dataset(self.static, graphs), (pattern,))

    def change(self, change: GraphChange) -> None:
        """Static graphs have changed."""
        encode = self._dictionary.encode
        for (pattern, graphs), table in self._tables.items():
            if set(graphs).isdisjoint(change.graphs):
                continue
            merged = Dataset(self.static, graphs)
            if change.triples is None:
                found = change.prepared and change.prepared.difference(merged, (pattern,))
                if found is None:
                    table.refresh()
                else:
                    schema, come, gone = found
                    table.change(
                        (_filled(pattern, schema, row, encode), there)
                        for rows, there in ((come, True), (gone, False))
                        for row in rows
                    )
                continue
            table.change(
                ((encode(s), encode(p), encode(o)), merged.has(Quad(s, p, o)))
                for s, p, o in change.triples
                if agrees(pattern, Quad(s, p, o))
            )

    def drop_idle(self) -> None:
        """Let go of tables that nobody has used: their query could not be made."""
        for key in [key for key, table in self._tables.items() if not table.users]:
            del self._tables[key]

    def __iter__(self) -> Iterator[StaticTable]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)


def _filled(
    pattern: QuadPattern,
    schema: tuple[Variable, ...],
    row: tuple[Term, ...],
    encode: Callable[[Term], TermId],
) -> EncodedTriple:
    """The triple that a solution of a pattern is of."""
    values = dict(zip(schema, row, strict=True))
    s, p, o = (encode(values.get(Variable(term), Term(term))) for term in pattern[:3])
    return s, p, o


class StaticJoin(HashJoin):
    """A join with the rows of a table, and with further ones.

    Args:
        left: a node that shares variables with the right one, bound on both sides.
        right: what there is beside the table: of these rows the node keeps an index.
        table: of the pattern whose variables the right schema is.
    """

    def __init__(self, left: Node, right: Node, table: StaticTable) -> None:
        super().__init__(left, right)
        shared = self._layout.shared
        assert shared
        assert not self._layout.loose
        schema = right.schema
        rest = tuple(place for place, name in enumerate(schema) if name not in left.schema)
        self._static = table.index(tuple(schema.index(name) for name in shared), rest)

    def _push_left(self, solution: Solution, count: int) -> None:
        super()._push_left(solution, count)
        partners = self._static.get(self._left_key(solution))
        if partners:
            emit = self.emit
            for rest in partners:
                emit(solution + rest, count)

    def static_change(self, row: Solution, count: int) -> None:
        """A row of the table comes or goes."""
        partners = self._left.get(self._right_key(row))
        if partners:
            emit = self.emit
            rest = self._rest(row)
            for partner, times in partners.items():
                emit(partner + rest, count * times)
