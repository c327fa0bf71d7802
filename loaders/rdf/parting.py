"""Write a store at a URL in parts, from the workers; the driver checks their totals."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, Self

import numpy as np

from loaders.errors import OutputError
from loaders.outputs import output_errors, output_path
from loaders.rdf.dictionary import RangeTerms
from loaders.rdf.orders import OrderRanges, SortedRange
from loaders.rdf.scan import unpacked_terms
from loaders.rdf.summary import RdfLoad, RdfSummary
from tpf_server.errors import NoStoreError, ServerError, StoreFormatError
from tpf_server.store.static import layout
from tpf_server.store.static.fetching import remote_manifest
from tpf_server.store.static.file_systems import RemoteFolder, is_store_url
from tpf_server.store.static.manifest import Manifest
from tpf_server.store.static.parts import (
    TERM_PARTS,
    PartsManifest,
    StorePart,
    packed_columns,
    put_part,
)
from tpf_server.store.static.writing import new_generation


@dataclass(frozen=True, slots=True)
class PartsPlace:
    """The folders of a store and its generation at a URL."""

    folder: RemoteFolder
    generation: str

    def put(self, name: str, content: bytes) -> StorePart:
        """Write a part; see `tpf_server.store.static.parts.put_part`."""
        try:
            return put_part(self.folder, self.generation, name, content)
        except ServerError as error:
            raise OutputError(str(error)) from None


class TermsPart(NamedTuple):
    """A part of the dictionary, and its number."""

    number: int
    part: StorePart


class RowsPart(NamedTuple):
    """A part of an order.

    `firsts` counts distinct first terms, `sums` are of the ids of each position.
    """

    number: int
    part: StorePart
    rows: int
    firsts: int
    first: tuple[int, ...]
    last: tuple[int, ...]
    sums: Mapping[str, int]


def put_terms(place: PartsPlace, of: RangeTerms) -> Iterator[TermsPart]:
    """Write a range of the dictionary; runs in the workers."""
    terms = unpacked_terms(of.terms)
    if len(terms):
        name = f"{TERM_PARTS}-{of.number:05}"
        yield TermsPart(of.number, place.put(name, packed_columns([terms])))


def put_rows(
    place: PartsPlace, orders: Mapping[str, OrderRanges], sorted_range: SortedRange
) -> Iterator[RowsPart]:
    """Write a range of an order; runs in the workers."""
    if not len(sorted_range.keys):
        return
    number = sorted_range.number
    name, order = next(each for each in reversed(list(orders.items())) if each[1].first <= number)
    rows = order.code.decode(sorted_range.keys)
    part = place.put(f"{name}-{number - order.first:05}", packed_columns(rows))
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
    job: RdfLoad,
) -> tuple[PartsManifest, int]:
    """Return the manifest of a store in parts, and its number of predicates.

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
        created=job.created,
        generation=place.generation,
        quads=first[1].rows,
        terms=term_count,
        graphs=totals["gspo"].graphs if "gspo" in totals else 0,
        orders=tuple(orders),
        prefixes=dict(job.prefixes),
        parts=parts,
        source=job.source,
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


# Stores at URLs: made in a folder of this machine, and put into an object store as a whole.
#
# Or written there in parts by the workers of a cluster (`loaders.rdf.parting`). The files or parts
# of the new generation go to a folder of their own, and the manifest, which alone says that they
# count, is written last. So whoever reads sees the old content or the new one, of two loads at a
# time the one that ends last counts, and what a killed load left is in nobody's way.

_BLOCK: Final = 4 << 20
_LITTER: Final = timedelta(days=1)
"""After so long without a new file, a folder that does not count was left by a killed load."""


class StoreOutput:
    """A store's final place, and where to make it.

    Raises:
        OutputError: it must not be replaced, or the object store refuses.
    """

    def __init__(
        self,
        output: str,
        replace: bool,
        now: datetime,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._now = now
        self.parts: PartsPlace | None = None
        self._put = False
        self._begun: set[str] = set()
        self._folder: RemoteFolder | None = None
        self._aside: TemporaryDirectory[str] | None = None
        if is_store_url(output):
            with output_errors():
                self._folder = RemoteFolder(output, environment)
                exists = _generation(self._folder) is not None
            self.parts = PartsPlace(self._folder, new_generation())
            self._begun.add(self.parts.generation)
            self._aside = TemporaryDirectory(prefix="tpf-load-")
            self.path = Path(self._aside.name) / "store"
            self.beside = Path(self._folder.url).name
        else:
            self.path = output_path(output)
            self.beside = str(self.path)
            exists = (self.path / layout.MANIFEST).exists()
        refusal = ""
        if exists and not replace:
            refusal = "--replace writes it anew"
        elif exists and self._folder is not None and not self._folder.replaces:
            refusal = "libhdfs replaces no file in one step: give a webhdfs:// URL"
        if refusal:
            self.__exit__()
            raise OutputError(f"{output} is a store already; {refusal}")

    path: Path
    """The directory to write the store to."""
    beside: str
    """What names of other files begin with: beside the store, or in the working directory."""

    parts: PartsPlace | None
    """Where workers may write it in parts; ``None``: it is to be a directory."""

    def put(self, summary: RdfSummary) -> None:
        """Make the written store the current one."""
        if self._folder is None:
            return
        manifest = summary.manifest
        self._begun.add(manifest.generation)
        with output_errors():
            if isinstance(manifest, Manifest):
                text = self._files_of(self._folder, manifest)
            else:
                text = manifest.text()
            before = _generation(self._folder)
            self._folder.write(layout.MANIFEST, [text])
            self._put = True
            for name, newest in self._folder.folders().items():
                # That of another load that runs now is left alone.
                old = newest < self._now - _LITTER
                litter = name.startswith(layout.GENERATION_PREFIX) and old
                if name != manifest.generation and (name == before or litter):
                    self._folder.remove(name)

    def _files_of(self, folder: RemoteFolder, manifest: Manifest) -> bytes:
        for name in manifest.files:
            folder.put(f"{manifest.generation}/{name}", self.path / manifest.generation / name)
        return (self.path / layout.MANIFEST).read_bytes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None and not self._put:
            # What was not completed is removed, where it can be; else a later load does it. A
            # manifest may be there although nobody said so.
            with suppress(ServerError):
                for generation in self._begun - {_generation(self._folder)}:
                    self._folder.remove(generation)
        if self._aside is not None:
            self._aside.cleanup()


def _generation(folder: RemoteFolder) -> str | None:
    try:
        return remote_manifest(folder).generation
    except NoStoreError:
        return None
    except StoreFormatError:
        return ""  # something is there, and who replaces it need not understand it
