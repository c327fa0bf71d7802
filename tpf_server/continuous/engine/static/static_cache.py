"""A sub-query over static data, evaluated once and kept with indexes; refreshed on change.

Source: paper 000, section 4.3.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import Schema, Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.state.join_input import JoinCondition, JoinInput
from tpf_client.dataflow.state.row_index import RowBag
from tpf_server.continuous.engine.static.dataset import Dataset
from tpf_server.continuous.engine.static.static_bgp import BoundRow, evaluate_static, touched
from tpf_server.continuous.engine.static.static_data import GraphChange

# How many rows are shown to those who estimate.
_SAMPLE: Final = 32
# To follow a triple costs about as much as evaluating this many rows anew.
_FOLLOW_COST: Final = 32


@dataclass(frozen=True, slots=True)
class Instance:
    """One of several queries that differ in constants only.

    Args:
        number: tells its rows from those of the others; in the column `Instances.column`.
        constants: its constants, by the variables that stand for them in the common text.
        slice: its OFFSET and LIMIT, where the common text has none.
    """

    number: TermId
    constants: dict[Variable, Term]
    slice: tuple[int, int | None] = (0, None)


INSTANCE = Variable("?.instance")
"""The column that tells the rows of an instance from those of others."""

SLICE = Variable("?.slice")
"""Stands for the OFFSET and LIMIT of instances."""


class StaticCache:
    """The rows of connected static patterns, for queries or for each of a query's instances.

    Args:
        dataset: the static data as the query sees it.
        patterns: connected by their variables.
        conditions: on these variables alone.
        needed: which variables to keep.
        distinct: whether equal rows count once.
        lifted: variables that stand for constants of the instances; where these patterns have any,
            the rows get the column `INSTANCE` and are evaluated for each instance.
        dictionary: the integers of terms.

    Attributes:
        consumers: the inputs of joins that are told of changes.
    """

    def __init__(
        self,
        dataset: Dataset,
        patterns: Sequence[QuadPattern],
        conditions: Sequence[JoinCondition],
        needed: frozenset[Variable],
        dictionary: TermDictionary,
        *,
        distinct: bool,
        lifted: frozenset[Variable] = frozenset(),
    ) -> None:
        self._dataset = dataset
        self.patterns = tuple(patterns)
        self._conditions = tuple(conditions)
        self._distinct = distinct
        self._dictionary = dictionary
        names = dict.fromkeys(Variable(t) for p in patterns for t in p if is_variable(t))
        self.per_instance = any(name in lifted for name in names)
        kept = [name for name in names if name in needed and name not in lifted]
        self._kept: Schema = tuple(kept)
        self.schema: Schema = (*kept, INSTANCE) if self.per_instance else self._kept
        self.bag = RowBag(len(self.schema), self._present, keeps=True)
        self.size = 0
        self._sample: Sequence[Solution] | None = None
        self._rows: dict[TermId, Counter[Solution]] = {}
        # With what is not distinct; where nothing is, these are the rows.
        self._all: dict[TermId, Counter[Solution]] = {} if distinct else self._rows
        self.consumers: list[JoinInput] = []
        self.graphs = frozenset(pattern.graph for pattern in patterns)

    def join_input(self, patterns: Sequence[QuadPattern], schema: Schema) -> JoinInput:
        """A further input of a join, which has these rows; a consumer it is not yet.

        Args:
            patterns: as the query writes them.
            schema: how it calls the columns.
        """
        label = " . ".join(" ".join(str(term) for term in p if term) for p in patterns)
        return JoinInput(
            label, schema, lambda: self.bag, lambda: self.size, self._some, seldom=True
        )

    def reads(self, change: GraphChange) -> bool:
        """Whether a change may change the rows."""
        return not self.graphs.isdisjoint(change.graphs) or any(
            is_variable(name) or name == DEFAULT_GRAPH for name in self.graphs
        )

    def changing(self, instance: Instance | None, change: GraphChange) -> Callable[[], None]:
        """Before a change; what it returns is called afterwards, and sends what changed.

        The cost is that of what the changed triples have partners for, not that of all rows.

        Args:
            instance: see `refresh`.
            change: of graphs that it reads.
        """
        number = self._number(instance)
        if number is None:
            return lambda: None
        patterns = self._patterns(instance, number)
        if change.prepared is not None:
            change.prepared.ask(self._dataset, patterns)
            return lambda: self._take(instance, number, change)
        if change.triples is None or len(change.triples) * _FOLLOW_COST > max(
            _FOLLOW_COST**2, self.size, *map(self._dataset.count, patterns)
        ):
            return lambda: self.refresh(instance, limited=False)
        schema, before = touched(self._dataset, patterns, change)

        def finish() -> None:
            _, after = touched(self._dataset, patterns, change)
            delta = self._encoded(schema, after - before, number)
            delta.subtract(self._encoded(schema, before - after, number))
            self._change(number, delta)

        return finish

    def _take(self, instance: Instance | None, number: TermId, change: GraphChange) -> None:
        """Put in what was prepared."""
        found = change.prepared.difference(self._dataset, self._patterns(instance, number))
        if found is None:
            self.refresh(instance, limited=False)
            return
        schema, come, gone = found
        delta = self._encoded(schema, come.elements(), number)
        delta.subtract(self._encoded(schema, gone.elements(), number))
        self._change(number, delta)

    def refresh(
        self, instance: Instance | None, *, sends: bool = True, limited: bool = True
    ) -> None:
        """Evaluate (for an instance, where rows are per instance) and send what changed.

        Args:
            instance: see above.
            sends: false where it is known that what changed meets no row of a window.
            limited: see `evaluate_static`; what is there already may grow.
        """
        number = self._number(instance)
        if number is not None:
            schema, rows = evaluate_static(
                self._dataset, self._patterns(instance, number), limited=limited
            )
            self._replace(number, self._encoded(schema, rows, number), sends=sends)

    def _number(self, instance: Instance | None) -> TermId | None:
        """Of an instance; 0 where rows are of all; ``None`` where nothing is to be done."""
        if not self.per_instance:
            return 0
        return None if instance is None else instance.number

    def drop(self, number: TermId, *, sends: bool = True) -> None:
        """Take out the rows of an instance."""
        if self.per_instance:
            self._replace(number, Counter(), sends=sends)
            self._rows.pop(number, None)
            self._all.pop(number, None)

    def _replace(self, number: TermId, new: Counter[Solution], *, sends: bool) -> None:
        delta = Counter(new)
        delta.subtract(self._all.get(number, Counter()))
        self._change(number, delta, sends=sends)

    def _change(self, number: TermId, delta: Counter[Solution], *, sends: bool = True) -> None:
        """Add what is positive, and take out what is negative."""
        rows = self._rows.setdefault(number, Counter())
        every = self._all.setdefault(number, rows)
        changes: list[tuple[Solution, int]] = []
        for row, change in delta.items():
            if not change:
                continue
            before = every[row]
            if before + change:
                every[row] = before + change
            else:
                del every[row]
            if not self._distinct:
                changes.append((row, change))
            elif not before:
                rows[row] = 1
                changes.append((row, 1))
            elif not before + change:
                del rows[row]
                changes.append((row, -1))
        self._sample = None
        for row, change in changes:
            self.size += change
            self.bag.change(row, change)
        for entry in self.consumers if sends else ():
            for row, change in changes:
                entry.route(row, change)

    def _some(self) -> Sequence[Solution]:
        """Some of the rows, from everywhere among them."""
        if self._sample is None:
            step = max(1, sum(map(len, self._rows.values())) // _SAMPLE)
            self._sample = [row for row, _ in islice(self._present(), 0, None, step)]
        return self._sample

    def _present(self) -> Iterable[tuple[Solution, int]]:
        for rows in self._rows.values():
            yield from rows.items()

    @property
    def tables(self) -> Iterable[object]:
        """All that holds its rows."""
        counts = (*self._rows.values(), *self._all.values())
        return self, self.bag, self._rows, self._all, *counts, *self.bag.tables

    def _patterns(self, instance: Instance | None, number: TermId) -> Sequence[QuadPattern]:
        """With the constants of an instance."""
        if not number:
            return self.patterns
        assert instance is not None
        constants = instance.constants
        return [
            QuadPattern(*(constants.get(Variable(term), term) for term in pattern))
            for pattern in self.patterns
        ]

    def _encoded(
        self, schema: Schema, rows: Iterable[BoundRow], number: TermId
    ) -> Counter[Solution]:
        """The rows of those solutions that meet the conditions, and how often each is there."""
        encode = self._dictionary.encode
        tests: list[tuple[list[int], Callable[[Solution], bool]]] = [
            ([schema.index(name) for name in condition.variables], condition.check)
            for condition in self._conditions
        ]
        places = [schema.index(name) for name in self._kept]
        suffix = (number,) if number else ()
        result: Counter[Solution] = Counter()
        numbers: dict[Term, TermId] = {}
        for terms in rows:
            row = []
            for term in terms:
                found = numbers.get(term)
                if found is None:
                    found = numbers[term] = encode(term)
                row.append(found)
            if all(check(tuple([row[at] for at in columns])) for columns, check in tests):
                result[(*[row[place] for place in places], *suffix)] += 1
        return result
