"""Evaluate sub-queries over static data once, and keep them with indexes; refresh them on change.

Source: paper 000, section 4.3.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import Schema, Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.state.row_index import JoinCondition, JoinInput, RowBag
from tpf_client.sparql.algebra import variables_of_quad
from tpf_client.sparql.rewrite.join_order import greedy_order
from tpf_server.continuous.runtime.errors import JoinLimitError
from tpf_server.continuous.runtime.static.static_data import Dataset, GraphChange, StaticData

# Basic graph patterns over static data: the join, evaluated once.
#
# Patterns are joined in the order of their counts, connected ones first. A pattern is looked up
# once per distinct binding, or, where that costs more than reading it whole, read once and hashed.

T = TypeVar("T")
BoundRow = tuple[Term, ...]

LOOKUP_COST: Final = 4
"""To look a pattern up costs about as much as reading this many triples in one go."""
_MOST: Final = 1_000_000
_SHARE: Final = 4
"""A join has no more rows than `_MOST`, or so many times as what is joined."""


def evaluate_static(
    dataset: Dataset,
    patterns: Sequence[QuadPattern],
    schema: tuple[Variable, ...] = (),
    rows: Sequence[BoundRow] = ((),),
    *,
    limited: bool = False,
) -> tuple[tuple[Variable, ...], list[BoundRow]]:
    """Return the variables and the bag of solutions of a basic graph pattern, joined with rows.

    Raises:
        JoinLimitError: there are too many.
    """
    counts = {pattern: dataset.count(pattern) for pattern in patterns}
    order = greedy_order(patterns, variables_of_quad, lambda each, _: counts[each], schema)
    bag = list(rows)
    for pattern in order:
        if bag:
            most = _MOST if limited else None
            schema, bag = _join(dataset, schema, bag, (pattern, counts[pattern]), most)
        else:
            schema += tuple(name for name in variables_of_quad(pattern) if name not in schema)
    return schema, bag


def touched(
    dataset: Dataset, patterns: Sequence[QuadPattern], change: GraphChange
) -> tuple[tuple[Variable, ...], set[BoundRow]]:
    """Return the solutions that use a changed quad.

    Their difference before and after the change is that of all solutions.
    """
    schema = tuple(dict.fromkeys(name for each in patterns for name in variables_of_quad(each)))
    result: set[BoundRow] = set()
    for position, pattern in enumerate(patterns):
        quads = list(dataset.seen(pattern, change))
        if quads:
            names = variables_of_quad(pattern)
            positions = [pattern.index(name) for name in names]
            rows = [tuple([quad[at] for at in positions]) for quad in quads]
            others = [*patterns[:position], *patterns[position + 1 :]]
            columns, rows = evaluate_static(dataset, others, names, rows)
            order = [columns.index(name) for name in schema]
            result.update(tuple([row[at] for at in order]) for row in rows)
    return schema, result


def _join(
    dataset: Dataset,
    schema: tuple[Variable, ...],
    rows: list[BoundRow],
    counted: tuple[QuadPattern, int],
    most: int | None,
) -> tuple[tuple[Variable, ...], list[BoundRow]]:
    pattern, count = counted
    names = variables_of_quad(pattern)
    shared = tuple(name for name in names if name in schema)
    new = tuple(name for name in names if name not in schema)
    at = [schema.index(name) for name in shared]
    keys = {tuple(row[position] for position in at) for row in rows}
    partners: dict[BoundRow, list[BoundRow]] = {}
    # Counts are estimates: where there is more than was thought, reading is given up.
    worthwhile = len(keys) * LOOKUP_COST if shared else None
    read = None
    if worthwhile is None or count <= worthwhile:
        read = read_at_most(_values(dataset, pattern, pattern, shared + new), worthwhile)
    if read is None:
        for key in keys:
            bound = dict(zip(shared, key, strict=True))
            filled = QuadPattern(*(bound.get(Variable(t), t) for t in pattern))
            partners[key] = list(_values(dataset, pattern, filled, new))
    else:
        for row in read:
            partners.setdefault(row[: len(shared)], []).append(row[len(shared) :])
    result = []
    if most is not None:
        most = max(most, _SHARE * (len(rows) + sum(map(len, partners.values()))))
    for row in rows:
        result += [
            row + each for each in partners.get(tuple([row[position] for position in at]), ())
        ]
        if most is not None and len(result) > most:
            raise JoinLimitError(f"the static patterns of the query have more than {most} rows")
    return schema + new, result


def _values(
    dataset: Dataset, pattern: QuadPattern, filled: QuadPattern, names: Iterable[Variable]
) -> Iterator[BoundRow]:
    positions = [pattern.index(name) for name in names]
    return (tuple([quad[position] for position in positions]) for quad in dataset.match(filled))


def read_at_most(values: Iterable[T], most: int | None) -> list[T] | None:
    """Return all values; ``None`` where there are more than `most`."""
    if most is None:
        return list(values)
    read = list(islice(values, most + 1))
    return None if len(read) > most else read


# How many rows are shown to those who estimate.
_SAMPLE: Final = 32
# To follow a triple costs about as much as evaluating this many rows anew.
_FOLLOW_COST: Final = 32


@dataclass(frozen=True, slots=True)
class Instance:
    """One of several queries that differ in constants only.

    Args:
        number: marks its rows; in the column `Instances.column`.
        constants: by the variables that stand for them in the common text.
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
        patterns: connected by their variables.
        conditions: on these variables alone.
        needed: the variables to keep.
        distinct: equal rows count once.
        lifted: variables that stand for constants of the instances; where these patterns have any,
            the rows get the column `INSTANCE` and are evaluated for each instance.

    Attributes:
        consumers: the inputs of joins that receive changes.
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
        self.bag = RowBag(len(self.schema), self._present, keep_indexes=True)
        self.size = 0
        self._sample: Sequence[Solution] | None = None
        self._rows: dict[TermId, Counter[Solution]] = {}
        # With what is not distinct; where nothing is, these are the rows.
        self._all: dict[TermId, Counter[Solution]] = {} if distinct else self._rows
        self.consumers: list[JoinInput] = []
        self.graphs = frozenset(pattern.graph for pattern in patterns)

    def join_input(self, patterns: Sequence[QuadPattern], schema: Schema) -> JoinInput:
        """Return another input of a join over these rows; it is no consumer yet."""
        label = " . ".join(" ".join(str(term) for term in p if term) for p in patterns)
        return JoinInput(
            label, schema, lambda: self.bag, lambda: self.size, self._some, seldom=True
        )

    def reads(self, change: GraphChange) -> bool:
        """True if a change may change the rows."""
        return not self.graphs.isdisjoint(change.graphs) or any(
            is_variable(name) or name == DEFAULT_GRAPH for name in self.graphs
        )

    def changing(self, instance: Instance | None, change: GraphChange) -> Callable[[], None]:
        """Prepare a change; call the result afterwards, to send its delta.

        It costs as much as the changed triples have partners, not as all rows.
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
        result = change.prepared.difference(self._dataset, self._patterns(instance, number))
        if result is None:
            self.refresh(instance, limited=False)
            return
        schema, come, gone = result
        delta = self._encoded(schema, come.elements(), number)
        delta.subtract(self._encoded(schema, gone.elements(), number))
        self._change(number, delta)

    def refresh(
        self, instance: Instance | None, *, sends: bool = True, limited: bool = True
    ) -> None:
        """Evaluate (for an instance, where rows are per instance) and send the delta.

        Without `sends`, it meets no row of a window. For `limited` see `evaluate_static`; present
        rows may grow.
        """
        number = self._number(instance)
        if number is not None:
            schema, rows = evaluate_static(
                self._dataset, self._patterns(instance, number), limited=limited
            )
            self._replace(number, self._encoded(schema, rows, number), sends=sends)

    def _number(self, instance: Instance | None) -> TermId | None:
        """Return the number of an instance, 0 for all, or ``None``: nothing is to be done."""
        if not self.per_instance:
            return 0
        return None if instance is None else instance.number

    def drop(self, number: TermId, *, sends: bool = True) -> None:
        if self.per_instance:
            self._replace(number, Counter(), sends=sends)
            self._rows.pop(number, None)
            self._all.pop(number, None)

    def _replace(self, number: TermId, new: Counter[Solution], *, sends: bool) -> None:
        delta = Counter(new)
        delta.subtract(self._all.get(number, Counter()))
        self._change(number, delta, sends=sends)

    def _change(self, number: TermId, delta: Counter[Solution], *, sends: bool = True) -> None:
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
            try:
                for row, change in changes:
                    entry.route(row, change)
            except Exception as error:  # noqa: BLE001 - it ends its query, and no other
                entry.failed(error)

    def _some(self) -> Sequence[Solution]:
        if self._sample is None:
            step = max(1, sum(map(len, self._rows.values())) // _SAMPLE)
            self._sample = [row for row, _ in islice(self._present(), 0, None, step)]
        return self._sample

    def _present(self) -> Iterable[tuple[Solution, int]]:
        for rows in self._rows.values():
            yield from rows.items()

    @property
    def tables(self) -> Iterable[object]:
        counts = (*self._rows.values(), *self._all.values())
        return self, self.bag, self._rows, self._all, *counts, *self.bag.tables

    def _patterns(self, instance: Instance | None, number: TermId) -> Sequence[QuadPattern]:
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
        encode = self._dictionary.encode
        tests: list[tuple[list[int], Callable[[Solution], bool]]] = [
            ([schema.index(name) for name in condition.variables], condition.check)
            for condition in self._conditions
        ]
        positions = [schema.index(name) for name in self._kept]
        suffix = (number,) if number else ()
        result: Counter[Solution] = Counter()
        numbers: dict[Term, TermId] = {}
        for terms in rows:
            row = []
            for term in terms:
                results = numbers.get(term)
                if results is None:
                    results = numbers[term] = encode(term)
                row.append(results)
            if all(check(tuple([row[at] for at in columns])) for columns, check in tests):
                result[(*[row[position] for position in positions], *suffix)] += 1
        return result


# The static caches of an engine: shared by queries, moved by changes of graphs.


class StaticCaches:
    """The caches that several queries may use, by content."""

    def __init__(self) -> None:
        self._shared: dict[object, StaticCache] = {}
        self._keys: dict[StaticCache, object] = {}

    def cache(
        self, key: object, taken: Sequence[StaticCache], make: Callable[[], StaticCache]
    ) -> StaticCache:
        """Return the cache of this key; a new one where there is none outside `taken`.

        A query with the same sub-query twice must see one change after the other.
        """
        result = self._shared.get(key)
        if result is None:
            result = self._shared[key] = make()
            self._keys[result] = key
            result.refresh(None)
        elif result in taken:
            return make()
        return result

    def changing(self, change: GraphChange) -> list[Callable[[], None]]:
        """Prepare a change of static graphs; call the results afterwards."""
        return [
            cache.changing(None, change) for cache in self._shared.values() if cache.reads(change)
        ]

    def drop_idle(self) -> None:
        """Drop the caches that no query uses."""
        for cache in tuple(self._keys):
            self.drop(cache)

    def drop(self, cache: StaticCache) -> None:
        """Drop a cache, if it is one of these and no query uses it."""
        if cache in self._keys and not cache.consumers:
            del self._shared[self._keys.pop(cache)]

    def __contains__(self, cache: StaticCache) -> bool:
        return cache in self._keys

    def __len__(self) -> int:
        return len(self._shared)


# What queries will see differently when stores are exchanged, found out before that happens.
#
# Only reading takes long, and needs nothing but the data; so it is done while queries go on.

StaticPart: TypeAlias = tuple[Dataset, Dataset, Sequence[QuadPattern]]


class Preparation:
    """The solutions of static patterns that an exchange of data adds and removes."""

    def __init__(self, before: StaticData, after: StaticData) -> None:
        self._before = before
        self._after = after
        self._wanted: dict[Hashable, StaticPart] = {}
        self._found: dict[
            Hashable, tuple[tuple[Variable, ...], Counter[BoundRow], Counter[BoundRow]]
        ] = {}

    def ask(self, dataset: Dataset, patterns: Sequence[QuadPattern]) -> None:
        key = dataset.key, tuple(patterns)
        if key not in self._wanted:
            default, named = dataset.key
            self._wanted[key] = (
                Dataset(self._before, default, named),
                Dataset(self._after, default, named),
                tuple(patterns),
            )

    def run(self) -> None:
        """Compute the differences; the data must not change meanwhile."""
        for key, (before, after, patterns) in self._wanted.items():
            schema, old = evaluate_static(before, patterns)
            columns, new = evaluate_static(after, patterns)
            order = [columns.index(name) for name in schema]
            gone = Counter(old)
            come = Counter(tuple([row[at] for at in order]) for row in new)
            self._found[key] = schema, come - gone, gone - come

    def difference(
        self, dataset: Dataset, patterns: Sequence[QuadPattern]
    ) -> tuple[tuple[Variable, ...], Counter[BoundRow], Counter[BoundRow]] | None:
        """Return variables, and the solutions that come and go; ``None``: not requested in time."""
        return self._found.get((dataset.key, tuple(patterns)))
