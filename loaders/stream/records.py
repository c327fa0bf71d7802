"""Arriving records, and their batches of labelled facts."""

import io
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import pyoxigraph as ox

from annotations.errors import AnnotationError, NestingError
from annotations.instants import parse_instant, shifted
from annotations.labels import Expiration, Fact, Interval, Label, Labelling
from annotations.methods import method_named
from annotations.nesting import bounded_statements
from annotations.terms import Quad, Term
from loaders.dynamic import naming_of
from loaders.errors import InputError
from loaders.outputs import line_of
from loaders.sources.csvw_mapping import read_metadata
from tpf_server.store.static.ox_terms import parse_rdf
from tpf_server.store.static.rdf_files import NOWHERE, BlankNodeScope, quad_texts, relative_iri

_METHOD = "rdf-1.2"


class Document(NamedTuple):
    """A file or message: name (with the format's suffix), time and text."""

    name: str
    at: datetime
    text: str


class Publication(NamedTuple):
    """A record's batch: N-Quads with one label, or annotated."""

    body: str
    label: Label | None
    facts: int


class RdfRecords:
    """RDF documents: annotated, or labelled by their instant."""

    def __init__(
        self, holds: timedelta | None, labelling: Labelling = "expiration", suffix: str = "nq"
    ) -> None:
        self._holds = holds
        self._labelling = labelling
        self._suffix = suffix

    def batch(self, record: Document) -> Publication:
        """Parse a record by its suffix, else by the usual one, else as N-Quads.

        Raises:
            InputError: the record is malformed.
            LabelError: no label begins at its instant.
        """
        suffixes = record.name.removesuffix(".gz").rpartition(".")[2].lower(), self._suffix
        known = filter(None, map(ox.RdfFormat.from_extension, suffixes))
        rdf_format = next(known, ox.RdfFormat.N_QUADS)
        scope = BlankNodeScope(0, keep_labels=True)
        base = NOWHERE if rdf_format == ox.RdfFormat.JSON_LD else None
        try:
            text = record.text.encode()
            parsed = quad_texts(parse_rdf(text, rdf_format, base=base), scope)
            quads = [Quad(*map(Term, texts)) for texts in bounded_statements(parsed, len(text))]
        except SyntaxError as error:
            raise InputError(str(error.msg), record.name, error.lineno) from None
        except NestingError as error:
            raise InputError(error.reason, record.name, error.line) from None
        for relative in filter(None, map(relative_iri, quads if base else ())):
            raise InputError(f"a relative IRI: {relative!r}", record.name)
        body = "".join(f"{line_of(quad)}\n" for quad in quads)
        label = None
        if self._holds is not None:
            label = label_from(record.at, self._holds, self._labelling)
        return Publication(body, label, len(quads))


class CsvRecords:
    """CSV documents, mapped by CSV on the Web metadata."""

    def __init__(
        self,
        metadata: Mapping[str, Any],
        source: str,
        dataset: str,
        holds: timedelta,
        at: str | None = None,
        labelling: Labelling = "expiration",
        base: str | None = None,
    ) -> None:
        # The description is pickled as text and read anew by every worker.
        self._described = json.dumps(metadata)
        self._source = source
        self._dataset = dataset
        self._holds = holds
        self._at = at
        self._labelling: Labelling = labelling
        self._base = base
        if len(self._tables()) != 1:
            raise InputError("describes several tables; a stream has one", source)

    def _tables(self) -> list[Any]:
        return list(read_metadata(json.loads(self._described), self._source, self._base))

    def batch(self, record: Document) -> Publication:
        (table,) = self._tables()
        rows = list(table.rows(io.StringIO(record.text, newline=""), record.name))
        if self._at is None:
            quads = [quad for row in rows for quad in row.quads]
            body = "".join(f"{line_of(quad)}\n" for quad in quads)
            return Publication(
                body, label_from(record.at, self._holds, self._labelling), len(quads)
            )
        naming = naming_of(self._dataset)
        method = method_named(_METHOD)
        lines: dict[str, None] = {}
        count = 0
        for row in rows:
            try:
                start = parse_instant(row.cells[self._at])
                label = label_from(start, self._holds, self._labelling)
            except (KeyError, AnnotationError) as error:
                raise InputError(
                    f"no instant in the column {self._at} ({error})", record.name, row.line
                ) from None
            for quad in row.quads:
                count += 1
                for encoded in method.encode(Fact(quad, label), naming):
                    lines[line_of(encoded)] = None
        return Publication("".join(f"{line}\n" for line in lines), None, count)


RecordMapping: TypeAlias = RdfRecords | CsvRecords
"""A mapping of records to batches, for workers."""


def label_from(start: datetime, holds: timedelta, labelling: Labelling) -> Label:
    """Return the label of a fact from an instant; `LabelError` at the last possible one."""
    end = shifted(start, holds)
    return Expiration(end) if labelling == "expiration" else Interval(start, end)
