"""A graph of static data in memory."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyoxigraph as ox

from annotations.terms import Term, Triple, is_iri, is_literal, is_triple_term, triple_term
from tpf_server.continuous.engine.errors import ContinuousError
from tpf_server.errors import RdfInputError
from tpf_server.store.static.ox_terms import OxTerm, ox_term, text_of
from tpf_server.store.static.rdf_files import RdfReader

_STRING = ox.NamedNode("http://www.w3.org/2001/XMLSchema#string")
_LEXICAL: Final = "lexical:"
"""Stands before the datatype of literals inside a `MemoryGraph`. Of the datatypes that it knows,
pyoxigraph keeps values: it gives ``"18"`` back for ``"18.0"``, and an integer for a byte. Literals
of a datatype that it does not know stay what they are."""

_numbers: Final = itertools.count(2**32)
"""Numbers of files, for their blank nodes; beyond those that stores give to theirs."""


def _kept(term: OxTerm) -> OxTerm:
    """A term as it is kept."""
    if isinstance(term, ox.Literal):
        if term.language is not None or term.datatype == _STRING:
            return term
        return ox.Literal(term.value, datatype=ox.NamedNode(_LEXICAL + term.datatype.value))
    if isinstance(term, ox.Triple):
        return ox.Triple(term.subject, term.predicate, _kept(term.object))
    return term


def _given(term: OxTerm) -> Term:
    """The text of a term that is kept."""
    if isinstance(term, ox.Literal):
        text = str(term)
        if text[-1] == ">":
            quote = text.rindex('"')
            return Term(f'{text[:quote]}"^^<{text[quote + len(_LEXICAL) + 4 :]}')
        return Term(text)
    if isinstance(term, ox.Triple):
        subject, predicate = text_of(term.subject), text_of(term.predicate)
        return triple_term(Triple(subject, predicate, _given(term.object)))
    return Term(str(term))


class MemoryGraph:
    """A graph in memory, kept by pyoxigraph; it can change."""

    def __init__(self) -> None:
        self._store = ox.Store()
        self._counts: dict[tuple[Term | None, Term | None, Term | None], int] = {}

    def load(self, path: Path) -> None:
        """Add the triples of an RDF file (all graphs of it), as stores read it.

        Raises:
            ContinuousError: the file cannot be read, is no RDF, or has a relative IRI.
        """
        try:
            read = RdfReader(path, next(_numbers)).quads()
            self._store.bulk_extend(_quad((Term(s), Term(p), Term(o))) for s, p, o, _ in read)
        except RdfInputError as error:
            raise ContinuousError(str(error)) from error
        self._counts.clear()

    def add(self, triples: Iterable[tuple[Term, Term, Term]]) -> None:
        """Add triples."""
        self._store.extend(map(_quad, triples))
        self._counts.clear()

    def remove(self, triples: Iterable[tuple[Term, Term, Term]]) -> None:
        """Remove triples; those that are not there are ignored."""
        for triple in triples:
            self._store.remove(_quad(triple))
        self._counts.clear()

    def clear(self) -> None:
        """Remove every triple."""
        self._store = ox.Store()
        self._counts.clear()

    def match(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterator[tuple[Term, Term, Term]]:
        """The triples with these terms; ``None`` is any."""
        for quad in self._find(subject, predicate, object_):
            yield Term(str(quad.subject)), Term(str(quad.predicate)), _given(quad.object)

    def _find(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterator[ox.Quad]:
        if (subject is not None and (is_literal(subject) or is_triple_term(subject))) or (
            predicate is not None and not is_iri(predicate)
        ):
            return iter(())
        try:
            s, p, o = (
                None if each is None else _kept(ox_term(each))
                for each in (subject, predicate, object_)
            )
        except ValueError:
            return iter(())  # streams may have terms that no file can have
        return self._store.quads_for_pattern(s, p, o, None)  # type: ignore[arg-type]

    def count(self, subject: Term | None, predicate: Term | None, object_: Term | None) -> int:
        """How many there are, counted up to a thousand; above that, a thousand per free place."""
        key = (subject, predicate, object_)
        found = self._counts.get(key)
        if found is None:
            found = 0
            for _ in self._find(subject, predicate, object_):
                found += 1
                if found == 1000:
                    found = 1000 * (1 + sum(term is None for term in key))
                    break
            self._counts[key] = found
        return found


def _quad(triple: tuple[Term, Term, Term]) -> ox.Quad:
    subject, predicate, object_ = map(ox_term, triple)
    return ox.Quad(subject, predicate, _kept(object_))  # type: ignore[arg-type]
