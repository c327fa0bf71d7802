"""The last step of a load that goes to a URL: the workers write what they made, as parts.

Each tells of its part as much as shows that all parts together are a store.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from loaders.errors import OutputError
from loaders.rdf.arrays import unpacked_terms
from loaders.rdf.dictionary import MergedRange
from loaders.rdf.orders import OrderRanges, SortedRange
from tpf_server.errors import ServerError
from tpf_server.store.static.file_systems import RemoteFolder
from tpf_server.store.static.parts import (
    TERM_PARTS,
    PartsManifest,
    StorePart,
    packed_columns,
    put_part,
)


@dataclass(frozen=True, slots=True)
class PartsPlace:
    """Where parts go: a folder of a URL, and in it that of their generation; it can be pickled."""

    folder: RemoteFolder
    generation: str

    def put(self, name: str, content: bytes) -> StorePart:
        """Write a part; see `tpf_server.store.static.parts.put_part`.

        Raises:
            OutputError: the object store does not take it.
        """
        try:
            return put_part(self.folder, self.generation, name, content)
        except ServerError as error:
            raise OutputError(str(error)) from None


class TermsPart(NamedTuple):
    """A part of the dictionary, and its number among them."""

    number: int
    part: StorePart


class RowsPart(NamedTuple):
    """A part of an order.

    Args:
        number: of the range, among those of all orders.
        part: what was written.
        rows: how many rows.
        firsts: how many different first terms, the default graph among them.
        first: the first row.
        last: the last row.
        sums: of the ids of each position.
    """

    number: int
    part: StorePart
    rows: int
    firsts: int
    first: tuple[int, ...]
    last: tuple[int, ...]
    sums: Mapping[str, int]


class PutTerms:
    """Writes ranges of the dictionary; runs in the workers."""

    def __init__(self, place: PartsPlace) -> None:
        self._place = place

    def __call__(self, merged: MergedRange) -> Iterator[TermsPart]:
        """Write one."""
        terms = unpacked_terms(merged.terms)
        if len(terms):
            number = merged.summary.number
            yield TermsPart(
                number, self._place.put(f"{TERM_PARTS}-{number:05}", packed_columns([terms]))
            )


class PutRows:
    """Writes ranges of orders; runs in the workers.

    Args:
        place: where to.
        orders: the ranges of each order.
    """

    def __init__(self, place: PartsPlace, orders: Mapping[str, OrderRanges]) -> None:
        self._place = place
        self._orders = list(orders.items())

    def __call__(self, sorted_range: SortedRange) -> Iterator[RowsPart]:
        """Write one."""
        if not len(sorted_range.keys):
            return
        number = sorted_range.number
        name, order = next(each for each in reversed(self._orders) if each[1].first <= number)
        rows = order.code.decode(sorted_range.keys)
        part = self._place.put(f"{name}-{number - order.first:05}", packed_columns(rows))
        yield RowsPart(
            number,
            part,
            len(rows[0]),
            1 + int(np.count_nonzero(rows[0][1:] != rows[0][:-1])),
            tuple(int(column[0]) for column in rows),
            tuple(int(column[-1]) for column in rows),
            {
                letter: int(column.sum(dtype=np.uint64))
                for letter, column in zip(name, rows, strict=True)
            },
        )


class _Total(NamedTuple):
    rows: int
    firsts: int
    sums: dict[str, int]
    graphs: int


def manifest_of_parts(
    place: PartsPlace,
    terms: Sequence[TermsPart],
    rows: Sequence[RowsPart],
    orders: Mapping[str, OrderRanges],
    term_count: int,
    *,
    created: datetime,
    prefixes: Mapping[str, str],
    source: str,
) -> tuple[PartsManifest, int]:
    """What makes a store of parts, and how many predicates it has.

    Raises:
        OutputError: the parts are not those of one store.
    """
    parts = {TERM_PARTS: [each.part for each in sorted(terms, key=lambda each: each.number)]}
    totals: dict[str, _Total] = {}
    for name, order in orders.items():
        numbers = range(order.first, order.first + len(order))
        own = sorted((each for each in rows if each.number in numbers), key=lambda e: e.number)
        parts[name] = [each.part for each in own]
        totals[name] = _total(name, own)
    first, *others = totals.items()
    for name, total in others:
        if (total.rows, total.sums) != (first[1].rows, first[1].sums):
            raise OutputError(f"the orders {first[0]} and {name} do not hold the same quads")
    manifest = PartsManifest(
        created=created,
        generation=place.generation,
        quads=first[1].rows,
        terms=term_count,
        graphs=totals["gspo"].graphs if "gspo" in totals else 0,
        orders=tuple(orders),
        prefixes=dict(prefixes),
        parts=parts,
        source=source,
    )
    return manifest, totals[manifest.orders[1]].firsts


def _total(name: str, own: Sequence[RowsPart]) -> _Total:
    firsts = sum(each.firsts for each in own)
    for one, other in pairwise(own):
        if one.last >= other.first:
            raise OutputError(f"the rows of the order {name} do not ascend strictly")
        # What the rows of both begin with was counted twice.
        firsts -= one.last[0] == other.first[0]
    sums = {letter: sum(each.sums[letter] for each in own) for letter in sorted(name)}
    in_default_graph = bool(own) and own[0].first[0] == 0
    return _Total(sum(each.rows for each in own), firsts, sums, firsts - in_default_graph)
