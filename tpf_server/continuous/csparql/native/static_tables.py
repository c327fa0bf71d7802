"""The static triples that match patterns: once for all queries that ask for them.

A query keeps of them what it has found partners for. Where it has nothing to look them up by, it
keeps a copy of its own.
"""

from collections.abc import Iterator
from operator import itemgetter

from annotations.terms import QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_server.continuous.csparql.native.static_table import StaticTable
from tpf_server.continuous.engine.static.dataset import Dataset
from tpf_server.continuous.engine.static.static_data import GraphChange, StaticData


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

    def table(self, pattern: QuadPattern, graphs: tuple[Term, ...]) -> StaticTable:
        """The triples that match a pattern in the merge of these graphs.

        Args:
            pattern: its own graph does not matter.
            graphs: names of static graphs, one at least.
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
