"""Join solutions of two schemas (SPARQL 1.1 Query Language, section 18.3).

A shared variable bound in every solution is a hashed `key`; others are `loose`, compared pairwise.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Schema, Solution, projection

KeyOf = Callable[[Solution], Any]
Merge = Callable[[Solution, Solution], Solution | None]


def key_reader(schema: Schema, names: tuple[Variable, ...]) -> KeyOf:
    """Read a hashable key: one bare value, or a tuple."""
    if not names:
        return _no_key
    places = _places(schema)
    return itemgetter(*(places[name] for name in names))


def _places(schema: Schema) -> dict[Variable, int]:
    return {name: column for column, name in enumerate(schema)}


def _no_key(_solution: Solution) -> Any:
    return ()


class Layout(NamedTuple):
    """The layout of a join of two schemas."""

    schema: Schema
    """All variables of the left, then those that only the right has."""
    certain: frozenset[Variable]
    """Bound in every merged solution."""
    shared: tuple[Variable, ...]
    keys: tuple[Variable, ...]
    loose: tuple[Variable, ...]
    left_key: KeyOf
    right_key: KeyOf
    merge: Merge
    """The merged solution of two whose keys are equal; ``None`` where they are not compatible."""
    rest: Callable[[Solution], Solution]
    """Project a right solution to what it adds where nothing is loose."""


def layout(
    left: Schema,
    left_certain: frozenset[Variable],
    right: Schema,
    right_certain: frozenset[Variable],
) -> Layout:
    """Compute how two schemas join."""
    left_places, right_places = _places(left), _places(right)
    shared = tuple(name for name in left if name in right_places)
    certain = left_certain & right_certain
    keys = tuple(name for name in shared if name in certain)
    loose = tuple(name for name in shared if name not in certain)
    only_right = tuple(name for name in right if name not in left_places)
    rest = projection(right, only_right)
    loose_places = [(left_places[name], right_places[name]) for name in loose]

    def merge_exact(one: Solution, other: Solution) -> Solution | None:
        return one + rest(other)

    def merge_loose(one: Solution, other: Solution) -> Solution | None:
        filled: list[int] | None = None
        for column, other_column in loose_places:
            mine, yours = one[column], other[other_column]
            if mine == yours or yours == UNBOUND:
                continue
            if mine != UNBOUND:
                return None
            if filled is None:
                filled = list(one)
            filled[column] = yours
        return (one if filled is None else tuple(filled)) + rest(other)

    return Layout(
        schema=left + only_right,
        certain=left_certain | right_certain,
        shared=shared,
        keys=keys,
        loose=loose,
        left_key=key_reader(left, keys),
        right_key=key_reader(right, keys),
        merge=merge_loose if loose else merge_exact,
        rest=rest,
    )
