"""The rows of static patterns, for queries of all languages: whole, or of the keys that are needed.

They are evaluated once, indexed, shared, and follow changes of their graphs at the cost of what
changed. Source: paper 000, section 4.3.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from annotations.terms import QuadPattern, Term, Variable
from tpf_client.dataflow.changes import Schema, Solution, TermId, selection
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.state.row_index import Columns, JoinCondition, JoinInput, RowBag
from tpf_client.sparql.algebra import variables_of_bgp, variables_of_quad
from tpf_client.sparql.rewrite.join_order import greedy_order
from tpf_server.continuous.runtime.errors import JoinLimitError
from tpf_server.continuous.runtime.static.service_clauses import numbered
from tpf_server.continuous.runtime.static.static_data import Dataset, GraphChange, StaticData

# Basic graph patterns over static data: the join, evaluated once.
#
# Patterns are joined in the order of their counts, connected ones first. A pattern is looked up
# once per distinct binding, or, where that costs more than reading it whole, read once and hashed.

T = TypeVar("T")
BoundRow = tuple[Term, ...]
Bound: TypeAlias = Mapping[Variable, Term]
"""What some variables of patterns are."""

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
            schema, bag = _join(dataset, schema, bag, (pattern, counts[pattern]), limited)
        else:
            schema += tuple(name for name in variables_of_quad(pattern) if name not in schema)
    return schema, bag


def touched(
    dataset: Dataset, patterns: Sequence[QuadPattern], change: GraphChange
) -> tuple[tuple[Variable, ...], set[BoundRow]]:
    """Return the solutions that use a changed quad.

    Their difference before and after the change is that of all solutions.
    """
    schema = variables_of_bgp(tuple(patterns))
    result: set[BoundRow] = set()
    for position, pattern in enumerate(patterns):
        quads = list(dataset.seen(pattern, change))
        if quads:
            names = variables_of_quad(pattern)
            positions = [pattern.index(name) for name in names]
            rows = [tuple([quad[at] for at in positions]) for quad in quads]
            others = [*patterns[:position], *patterns[position + 1 :]]
            columns = names
            if others:
                columns, rows = evaluate_static(dataset, others, names, rows)
            order = [columns.index(name) for name in schema]
            result.update(tuple([row[at] for at in order]) for row in rows)
    return schema, result


def _join(
    dataset: Dataset,
    schema: tuple[Variable, ...],
    rows: list[BoundRow],
    counted: tuple[QuadPattern, int],
    limited: bool,
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
        read = read_at_most(_values(dataset, pattern, shared + new), worthwhile)
    if read is None:
        for key in keys:
            filled = _filled(pattern, dict(zip(shared, key, strict=True)))
            partners[key] = list(_values(dataset, filled, new))
    else:
        for row in read:
            partners.setdefault(row[: len(shared)], []).append(row[len(shared) :])
    result = []
    most = max(_MOST, _SHARE * (len(rows) + sum(map(len, partners.values()))))
    for row in rows:
        result += [
            row + each for each in partners.get(tuple([row[position] for position in at]), ())
        ]
        if limited and len(result) > most:
            raise JoinLimitError(f"the static patterns of the query have more than {most} rows")
    return schema + new, result


def _filled(pattern: QuadPattern, bound: Bound) -> QuadPattern:
    return QuadPattern(*(bound.get(Variable(term), term) for term in pattern))


def _values(
    dataset: Dataset, pattern: QuadPattern, names: Iterable[Variable]
) -> Iterator[BoundRow]:
    positions = [pattern.index(name) for name in names]
    return (tuple([quad[position] for position in positions]) for quad in dataset.match(pattern))


def read_at_most(values: Iterable[T], most: int | None) -> list[T] | None:
    """Return all values; ``None`` where there are more than `most`."""
    if most is None:
        return list(values)
    read = list(islice(values, most + 1))
    return None if len(read) > most else read


# Who uses static rows, and how it is told of changes.


@dataclass(frozen=True, slots=True)
class Instance:
    """One of several queries that differ in constants only.

    Args:
        number: marks its rows; in the column `INSTANCE`.
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


class RowsUser(Protocol):
    """What needs all rows."""

    def static_change(self, row: Solution, count: int) -> None:
        """A row came or went."""


class IndexUser(Protocol):
    """A join that looks rows up."""

    @property
    def keys(self) -> Collection[Any]:
        """Keys whose changes it must hear of."""

    def static_change(self, key: Any, rest: Solution, count: int) -> None:
        """A row came or went."""


UserT = TypeVar("UserT", RowsUser, IndexUser)
Notice: TypeAlias = tuple[int, Callable[..., None], Sequence[tuple[Any, ...]]]
"""The position of a user in the order of joins, how it is told, and what."""
Finish: TypeAlias = Callable[[], list[Notice]]
"""Is called after a change of graphs; gives whom to tell."""


def _notices(users: Mapping[UserT, int], changes: Sequence[tuple[Any, ...]]) -> list[Notice]:
    return [(at, user.static_change, changes) for user, at in users.items()] if changes else []


def tell(notices: Iterable[Notice]) -> None:
    """Tell users of changes, the last join of a query first.

    So each meets its old state with the change, and later the changes from below.
    """
    for _, take, changes in sorted(notices, key=itemgetter(0), reverse=True):
        for each in changes:
            take(*each)


class StaticInput(JoinInput):
    """An input of a join that has all rows."""

    def static_change(self, row: Solution, count: int) -> None:
        try:
            self.route(row, count)
        except Exception as error:  # noqa: BLE001 - it ends its query, and no other
            self.failed(error)


# Rows by values of some columns: what a join looks up, kept while it is needed.

_LEAST: Final = 4096
"""So many keys and rows stay, whether anybody needs them or not."""
_Rests: TypeAlias = dict[Solution, int]
_NOTHING: Final[_Rests] = {}


class StaticIndex(dict[Any, _Rests]):
    """Rows by the values of some columns.

    A key is looked up with its first use, and followed as long as a user has partners for it. Of
    rows that are read whole, all keys are there.
    """

    def __init__(
        self, source: "StaticRows", key: Columns, rest: Columns, decode: Callable[[TermId], Term]
    ) -> None:
        super().__init__()
        self.users: dict[IndexUser, int] = {}
        self._source = source
        self._decode = decode
        self._names = [source.schema[column] for column in key]
        self._key = itemgetter(*key)
        self._rest = selection(rest, len(source.schema))
        self._size = 0
        self._limit = _LEAST
        self.fill()

    def fill(self) -> None:
        self.clear()
        for row, _ in self._source.rows():
            self.setdefault(self._key(row), {})[self._rest(row)] = 1

    def __missing__(self, key: Any) -> _Rests:
        if self._source.whole:
            return _NOTHING
        if self._size > self._limit:
            self.let_go()
            # Where so many are needed, reading everything costs no more.
            self._source.read(LOOKUP_COST * len(self))
            return self[key]
        rests = self[key] = dict(self._source.look_up(self._bound(key)))
        self._size += 1 + len(rests)
        return rests

    def let_go(self) -> None:
        """Drop the keys that nobody needs."""
        needed: set[Any] = set()
        for user in self.users:
            needed.update(user.keys)
        for key in [each for each in self if each not in needed]:
            del self[key]
        self._size = len(self) + sum(map(len, self.values()))
        self._limit = max(_LEAST, 2 * self._size)

    def change(self, changes: Iterable[tuple[Solution, int]]) -> list[Notice]:
        """Take rows that came or went, as far as their keys are there."""
        new = []
        for row, count in changes:
            key = self._key(row)
            if key not in self:
                if not self._source.whole:
                    continue
                self[key] = {}
            new += self._changed(key, self._rest(row), count)
            if self._source.whole and not self[key]:
                del self[key]
        return _notices(self.users, new)

    def changing(self, change: GraphChange) -> Finish:
        """Prepare a change that is found out key by key; see `StaticRows.changing`."""
        self.let_go()
        deltas = [
            (key, self._source.delta(change, rests, self._bound(key)))
            for key, rests in self.items()
        ]

        def finish() -> list[Notice]:
            new = []
            for key, delta in deltas:
                for rest, count in delta().items():
                    new += self._changed(key, rest, count)
            return _notices(self.users, new)

        return finish

    def _changed(self, key: Any, rest: Solution, count: int) -> list[tuple[Any, Solution, int]]:
        rests = self.get(key)
        if rests is None or not count or (count > 0) == (rest in rests):
            return []
        if count > 0:
            rests[rest] = 1
        else:
            del rests[rest]
        return [(key, rest, count)]

    def _bound(self, key: Any) -> Bound:
        values = map(self._decode, key if len(self._names) > 1 else (key,))
        return dict(zip(self._names, values, strict=True))


# The rows of connected patterns.

_SAMPLE: Final = 32
"""How many rows are shown to those who estimate."""
_FOLLOW_COST: Final = 32
"""To follow a triple costs about as much as evaluating this many rows anew."""
_ALL: Final[Bound] = {}


class StaticRows:
    """The rows of connected static patterns: whole, of a query's instances, or of keys.

    Args:
        patterns: connected by their variables.
        conditions: on these variables alone.
        needed: the variables to keep; ``None``: all.
        distinct: equal rows count once.
        lifted: variables that stand for constants of the instances; where these patterns have any,
            the rows get the column `INSTANCE` and are evaluated for each instance.

    Attributes:
        key: equal for those with the same rows.
        bag: all rows, with the indexes of joins.
        size: how many there are.
        users: what is told of changes, with its position in the order of joins.
    """

    def __init__(
        self,
        dataset: Dataset,
        patterns: Sequence[QuadPattern],
        dictionary: TermDictionary,
        conditions: Sequence[JoinCondition] = (),
        needed: frozenset[Variable] | None = None,
        *,
        distinct: bool = False,
        lifted: frozenset[Variable] = frozenset(),
    ) -> None:
        self._dataset = dataset
        self.patterns = tuple(patterns)
        self._conditions = tuple(conditions)
        self._distinct = distinct
        self._dictionary = dictionary
        names = variables_of_bgp(self.patterns)
        self.per_instance = not lifted.isdisjoint(names)
        self._kept: Schema = tuple(
            name for name in names if name not in lifted and (needed is None or name in needed)
        )
        self.schema: Schema = (*self._kept, INSTANCE) if self.per_instance else self._kept
        columns = tuple(map(names.index, self._kept))
        self.key: Hashable = dataset.key, numbered(self.patterns), columns, distinct
        self.bag = RowBag(len(self.schema), self.rows, keep_indexes=True)
        self.size = 0
        self.users: dict[RowsUser, int] = {}
        self._indexes: dict[tuple[Columns, Columns], StaticIndex] = {}
        self._sample: Sequence[Solution] | None = None
        self.all: Counter[Solution] = Counter()
        # By instance, 0 for all: what is bound in the patterns, and the rows before `distinct`.
        self._bound: dict[TermId, Bound] = {}
        self._parts: dict[TermId, Counter[Solution]] = {}
        self._more_than = 0

    @property
    def whole(self) -> bool:
        return bool(self._parts)

    @property
    def used(self) -> bool:
        return bool(self.users or self._indexes)

    @property
    def holders(self) -> Iterable[object]:
        """Return holders of static terms alone.

        Those of looked-up keys may come with streams, and go.
        """
        yield from (self, self.bag, *self.bag.tables, self._indexes)
        yield from (self._parts, *self._parts.values())
        if self.whole:
            yield from self._indexes.values()

    # ------------------------------------------------------------------------------ users

    def join_input(self, patterns: Sequence[QuadPattern], schema: Schema) -> StaticInput:
        """Return another input of a join over all rows, with its names; it is no user yet."""
        label = " . ".join(" ".join(str(term) for term in p if term) for p in patterns)
        return StaticInput(
            label, schema, lambda: self.bag, lambda: self.size, self._some, seldom=True
        )

    def index(
        self, columns: tuple[Columns, Columns], user: IndexUser, position: int
    ) -> StaticIndex:
        """Return the index of rows by some columns, with the rest of these, for one more user."""
        index = self._indexes.get(columns)
        if index is None:
            index = self._indexes[columns] = StaticIndex(self, *columns, self._dictionary.decode)
        index.users[user] = position
        return index

    def leave(self, user: Any) -> None:
        self.users.pop(user, None)
        for columns, index in tuple(self._indexes.items()):
            if index.users.pop(user, None) is not None and not index.users:
                del self._indexes[columns]

    # ------------------------------------------------------------------------------- rows

    def rows(self) -> Iterator[tuple[Solution, int]]:
        for part in self._parts.values():
            yield from ((row, 1) for row in part) if self._distinct else part.items()

    def _some(self) -> Sequence[Solution]:
        if self._sample is None:
            step = max(1, sum(map(len, self._parts.values())) // _SAMPLE)
            self._sample = [row for row, _ in islice(self.rows(), 0, None, step)]
        return self._sample

    def read(self, most: int | None = None) -> None:
        """Read a single pattern whole, unless there are more than `most` triples."""
        (pattern,) = self.patterns
        if self.whole or (
            most is not None and (most <= self._more_than or self._dataset.count(pattern) > most)
        ):
            return
        read = read_at_most(_values(self._dataset, pattern, self.schema), most)
        if read is None:
            # Counts are estimates.
            self._more_than = most or 0
            return
        with self._dictionary.permanently():
            rows = self._encoded(self.schema, read, 0)
        self._bound[0] = _ALL
        self._parts[0] = self.all
        self.all.update(rows)
        self.size = len(rows)
        for index in self._indexes.values():
            index.fill()

    def evaluate(self, instance: Instance | None = None) -> list[Notice]:
        """Evaluate the patterns, or those of an instance; return whom to tell.

        Raises:
            JoinLimitError: there are too many rows.
        """
        number, bound = (0, _ALL) if instance is None else (instance.number, instance.constants)
        rows = self.look_up(bound, number, limited=True)
        rows.subtract(self._parts.get(number, ()))
        return self._change(number, rows, bound)

    def drop(self, number: TermId) -> list[Notice]:
        """Drop the rows of an instance; return whom to tell."""
        if number not in self._parts:
            return []
        notices = self._change(number, {row: -n for row, n in self._parts[number].items()})
        del self._parts[number], self._bound[number]
        return notices

    def look_up(
        self, bound: Bound, number: TermId = 0, *, limited: bool = False
    ) -> Counter[Solution]:
        """Return the rows with these values, without the columns of these."""
        first, *others = patterns = self._filled(bound)
        if others:
            schema, rows = evaluate_static(self._dataset, patterns, limited=limited)
            return self._encoded(schema, rows, number)
        schema = variables_of_quad(first)
        return self._encoded(schema, _values(self._dataset, first, schema), number)

    def _filled(self, bound: Bound) -> list[QuadPattern]:
        return [_filled(each, bound) for each in self.patterns] if bound else [*self.patterns]

    def _encoded(
        self, schema: Schema, rows: Iterable[BoundRow], number: TermId
    ) -> Counter[Solution]:
        encode = self._dictionary.encode
        tests: list[tuple[list[int], Callable[[Solution], bool]]] = [
            ([schema.index(name) for name in condition.variables], condition.check)
            for condition in self._conditions
        ]
        positions = [schema.index(name) for name in self._kept if name in schema]
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
            if not tests or all(check(tuple([row[p] for p in at])) for at, check in tests):
                result[(*[row[position] for position in positions], *suffix)] += 1
        return result

    def _change(
        self, number: TermId, delta: Mapping[Solution, int], bound: Bound = _ALL
    ) -> list[Notice]:
        if number not in self._parts:
            self._bound[number] = bound
            self._parts[number] = Counter() if number else self.all
        part = self._parts[number]
        changes = []
        for row, count in delta.items():
            before = part[row]
            after = before + count
            if after:
                part[row] = after
            elif before:
                del part[row]
            change = bool(after) - bool(before) if self._distinct else count
            if change:
                changes.append((row, change))
        self._sample = None
        for row, change in changes:
            self.size += change
            self.bag.change(row, change)
        return _notices(self.users, changes)

    # ---------------------------------------------------------------------------- changes

    def changing(self, change: GraphChange) -> Finish | None:
        """Prepare a change of graphs; call the result afterwards. ``None``: it matters not.

        It costs as much as the changed triples have partners, not as all rows.
        """
        indexes = self._indexes.values()
        if not (self.whole or indexes) or not self._dataset.sees(self.patterns, change):
            return None
        if not self.whole and not self._follows(self.patterns, change):
            by_key = [index.changing(change) for index in indexes]
            return lambda: [each for finish in by_key for each in finish()]
        # Where it is followed, keys find their rows among all.
        deltas = [
            (number, self.delta(change, self._parts.get(number, self.all), bound, number))
            for number, bound in (self._bound or {0: _ALL}).items()
        ]

        def finish() -> list[Notice]:
            notices = []
            for number, delta in deltas:
                rows = delta()
                if self.whole:
                    notices += self._change(number, rows)
                for index in indexes:
                    notices += index.change(rows.items())
            return notices

        return finish

    def delta(
        self,
        change: GraphChange,
        present: Mapping[Solution, int],
        bound: Bound = _ALL,
        number: TermId = 0,
    ) -> Callable[[], Counter[Solution]]:
        """Prepare a change of the rows with these values; call the result afterwards."""
        dataset, patterns, prepared = self._dataset, self._filled(bound), change.prepared
        if self._follows(patterns, change):
            schema, before = touched(dataset, patterns, change)

            def followed() -> Counter[Solution]:
                _, after = touched(dataset, patterns, change)
                return self._difference(number, schema, after - before, before - after)

            return followed
        if prepared is not None:
            prepared.ask(dataset, patterns)

        def renewed() -> Counter[Solution]:
            result = prepared and prepared.difference(dataset, patterns)
            if result:
                schema, come, gone = result
                return self._difference(number, schema, come.elements(), gone.elements())
            rows = self.look_up(bound, number)
            rows.subtract(present)
            return rows

        return renewed

    def _follows(self, patterns: Sequence[QuadPattern], change: GraphChange) -> bool:
        """True where following the triples of a change costs less than evaluating anew."""
        if change.triples is None:
            return False
        cost = len(change.triples) * _FOLLOW_COST
        # To count may take longer than to follow.
        return cost <= max(_FOLLOW_COST**2, self.size) or any(
            cost <= self._dataset.count(each) for each in patterns
        )

    def _difference(
        self, number: TermId, schema: Schema, come: Iterable[BoundRow], gone: Iterable[BoundRow]
    ) -> Counter[Solution]:
        result = self._encoded(schema, come, number)
        result.subtract(self._encoded(schema, gone, number))
        return result


class SharedRows:
    """The static rows that several queries may use."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, StaticRows] = {}

    def shared(self, rows: StaticRows) -> StaticRows:
        """Return the equal ones that are there, or these."""
        return self._rows.setdefault(rows.key, rows)

    def changing(self, change: GraphChange) -> list[Finish]:
        """Prepare a change of graphs; call the results afterwards."""
        return [finish for each in self if (finish := each.changing(change)) is not None]

    def drop_idle(self) -> None:
        for rows in tuple(self):
            self.drop(rows)

    def drop(self, rows: StaticRows) -> None:
        """Drop rows, if these are among them and no query uses them."""
        if rows in self and not rows.used:
            del self._rows[rows.key]

    def __contains__(self, rows: StaticRows) -> bool:
        return self._rows.get(rows.key) is rows

    def __iter__(self) -> Iterator[StaticRows]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)


# What queries will see differently when stores are exchanged, found out before that happens.
#
# Only reading takes long, and needs nothing but the data; so it is done while queries go on.

Difference: TypeAlias = tuple[tuple[Variable, ...], Counter[BoundRow], Counter[BoundRow]]
"""Variables, and the solutions that come and go."""
_Asked: TypeAlias = tuple[tuple[tuple[Term, ...], tuple[Term, ...]], tuple[QuadPattern, ...]]
"""What a dataset sees, and patterns."""


class Preparation:
    """The solutions of static patterns that an exchange of data adds and removes."""

    def __init__(self, before: StaticData, after: StaticData) -> None:
        self._before = before
        self._after = after
        self._found: dict[_Asked, Difference | None] = {}

    def ask(self, dataset: Dataset, patterns: Sequence[QuadPattern]) -> None:
        self._found.setdefault((dataset.key, tuple(patterns)))

    def run(self) -> None:
        """Compute the differences; the data must not change meanwhile."""
        for graphs, patterns in tuple(self._found):
            schema, old = evaluate_static(Dataset(self._before, *graphs), patterns)
            columns, new = evaluate_static(Dataset(self._after, *graphs), patterns)
            order = [columns.index(name) for name in schema]
            gone = Counter(old)
            come = Counter(tuple([row[at] for at in order]) for row in new)
            self._found[graphs, patterns] = schema, come - gone, gone - come

    def difference(self, dataset: Dataset, patterns: Sequence[QuadPattern]) -> Difference | None:
        """Return the difference of these; ``None``: not requested in time."""
        return self._found.get((dataset.key, tuple(patterns)))
