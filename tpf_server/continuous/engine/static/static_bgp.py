"""Basic graph patterns over static data: the join, evaluated once.

Patterns are joined in the order of their counts, connected ones first. A pattern is looked up once
per distinct binding, or, where that costs more than reading it whole, read once and hashed.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from annotations.terms import QuadPattern, Term, Variable
from tpf_client.sparql.algebra import variables_of_quad
from tpf_client.sparql.rewrite.join_order import greedy_order
from tpf_server.continuous.engine.errors import JoinLimitError
from tpf_server.continuous.engine.static.dataset import Dataset
from tpf_server.continuous.engine.static.static_data import GraphChange

T = TypeVar("T")
BoundRow = tuple[Term, ...]

LOOKUP_COST: Final = 4
"""To look a pattern up costs about as much as reading this many triples in one go."""
_MOST: Final = 1_000_000
_SHARE: Final = 4
"""A join has no more rows than `_MOST`, or so many times as what is joined."""


def evaluate_static(
    dataset: Dataset, patterns: Sequence[QuadPattern], *, limited: bool = False
) -> tuple[tuple[Variable, ...], list[BoundRow]]:
    """The solutions of a basic graph pattern, as a bag, and the variables of their columns.

    Args:
        dataset: of which quads.
        patterns: joined, at least one.
        limited: whether joins have no more rows than `_MOST` says.

    Raises:
        JoinLimitError: they would have more.
    """
    return _evaluate(dataset, patterns, (), [()], limited=limited)


def touched(
    dataset: Dataset, patterns: Sequence[QuadPattern], change: GraphChange
) -> tuple[tuple[Variable, ...], set[BoundRow]]:
    """Those of the solutions that are there because of a quad that a change is about.

    What they are before and after the change differs exactly as all solutions do.
    """
    schema = tuple(dict.fromkeys(name for each in patterns for name in variables_of_quad(each)))
    found: set[BoundRow] = set()
    for place, pattern in enumerate(patterns):
        quads = list(dataset.seen(pattern, change))
        if quads:
            names = variables_of_quad(pattern)
            places = [pattern.index(name) for name in names]
            rows = [tuple([quad[at] for at in places]) for quad in quads]
            others = [*patterns[:place], *patterns[place + 1 :]]
            columns, rows = _evaluate(dataset, others, names, rows)
            order = [columns.index(name) for name in schema]
            found.update(tuple([row[at] for at in order]) for row in rows)
    return schema, found


def _evaluate(
    dataset: Dataset,
    patterns: Sequence[QuadPattern],
    schema: tuple[Variable, ...],
    rows: list[BoundRow],
    *,
    limited: bool = False,
) -> tuple[tuple[Variable, ...], list[BoundRow]]:
    """Rows joined with patterns."""
    counts = {pattern: dataset.count(pattern) for pattern in patterns}
    order = greedy_order(patterns, variables_of_quad, lambda each, _: counts[each], known=schema)
    for pattern in order:
        if rows:
            most = _MOST if limited else None
            schema, rows = _join(dataset, schema, rows, (pattern, counts[pattern]), most)
        else:
            schema += tuple(name for name in variables_of_quad(pattern) if name not in schema)
    return schema, rows


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
    keys = {tuple(row[place] for place in at) for row in rows}
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
    found = []
    if most is not None:
        most = max(most, _SHARE * (len(rows) + sum(map(len, partners.values()))))
    for row in rows:
        found += [row + each for each in partners.get(tuple([row[place] for place in at]), ())]
        if most is not None and len(found) > most:
            raise JoinLimitError(f"the static patterns of the query have more than {most} rows")
    return schema + new, found


def _values(
    dataset: Dataset, pattern: QuadPattern, filled: QuadPattern, names: Iterable[Variable]
) -> Iterator[BoundRow]:
    places = [pattern.index(name) for name in names]
    return (tuple([quad[place] for place in places]) for quad in dataset.match(filled))


def read_at_most(values: Iterable[T], most: int | None) -> list[T] | None:
    """All values; ``None`` where there are more than `most`."""
    if most is None:
        return list(values)
    read = list(islice(values, most + 1))
    return None if len(read) > most else read
