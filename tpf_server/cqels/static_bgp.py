"""Basic graph patterns over static data: the join, evaluated once.

Patterns are joined in the order of their counts, connected ones first. A pattern is looked up once
per distinct binding, or, where that costs more than reading it whole, read once and hashed.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from annotations.terms import QuadPattern, Term, Variable, is_variable
from tpf_client.sparql.algebra import variables_of_quad
from tpf_server.cqels.static_data import Dataset

Row = tuple[Term, ...]
# A lookup costs about as much as reading this many triples in one go.
_LOOKUP_COST = 4


def evaluate(
    dataset: Dataset, patterns: Sequence[QuadPattern]
) -> tuple[tuple[Variable, ...], list[Row]]:
    """The solutions of a basic graph pattern, as a bag, and the variables of their columns."""
    rest = list(patterns)
    schema: tuple[Variable, ...] = ()
    rows: list[Row] = [()]
    while rest:
        counts = {pattern: dataset.count(pattern) for pattern in rest}
        connected = [p for p in rest if set(variables_of_quad(p)) & set(schema)]
        following = min(connected or rest, key=lambda pattern: counts[pattern])
        rest.remove(following)
        schema, rows = _join(dataset, schema, rows, following, counts[following])
        if not rows:
            for pattern in rest:
                schema += tuple(n for n in variables_of_quad(pattern) if n not in schema)
            break
    return schema, rows


def _join(
    dataset: Dataset,
    schema: tuple[Variable, ...],
    rows: list[Row],
    pattern: QuadPattern,
    count: int,
) -> tuple[tuple[Variable, ...], list[Row]]:
    names = variables_of_quad(pattern)
    shared = tuple(name for name in names if name in schema)
    new = tuple(name for name in names if name not in schema)
    at = [schema.index(name) for name in shared]
    keys = {tuple(row[place] for place in at) for row in rows}
    partners: dict[Row, list[Row]] = {}
    # Counts are estimates: where there is more than was thought, reading is given up.
    worthwhile = len(keys) * _LOOKUP_COST if shared else None
    read = None
    if worthwhile is None or count <= worthwhile:
        read = _read(_values(dataset, pattern, pattern, shared + new), worthwhile)
    if read is None:
        for key in keys:
            bound = dict(zip(shared, key, strict=True))
            filled = QuadPattern(*(bound.get(Variable(t), t) for t in pattern))
            partners[key] = list(_values(dataset, pattern, filled, new))
    else:
        for row in read:
            partners.setdefault(row[: len(shared)], []).append(row[len(shared) :])
    return schema + new, [
        row + partner
        for row in rows
        for partner in partners.get(tuple(row[place] for place in at), ())
    ]


def _values(
    dataset: Dataset, pattern: QuadPattern, filled: QuadPattern, names: Iterable[Variable]
) -> Iterator[Row]:
    places = [pattern.index(name) for name in names]
    return (tuple([quad[place] for place in places]) for quad in dataset.match(filled))


def _read(values: Iterator[Row], most: int | None) -> list[Row] | None:
    """All values; ``None`` where there are more than `most`."""
    if most is None:
        return list(values)
    read = list(islice(values, most + 1))
    return None if len(read) > most else read


def components(patterns: Sequence[QuadPattern]) -> list[list[QuadPattern]]:
    """The patterns in groups that share no variable with each other."""
    groups: list[tuple[set[str], list[QuadPattern]]] = []
    for pattern in patterns:
        names: set[str] = {term for term in pattern if is_variable(term)}
        members = [pattern]
        apart = []
        for other_names, other_members in groups:
            if other_names & names:
                names |= other_names
                members = other_members + members
            else:
                apart.append((other_names, other_members))
        groups = [*apart, (names, members)]
    return [members for _, members in groups]
