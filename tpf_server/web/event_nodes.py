"""The nodes of a Linked Data Event Stream: which batches are on which, and their triples.

Batches are numbered, so a node is a run of numbers: a *leaf* has the members of `LEAF` batches, a
*block* leads to `BLOCK` leaves, and the root leads to all blocks but the newest, and to the leaves
of that one. So a node that is full never changes. A member is a version of a labelled fact: what
was said of it from an instant on, or that it is said no more.

Sources: *Linked Data Event Streams*, version 1.0; the TREE hypermedia specification.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Final

from annotations.instants import from_micros, instant_term
from annotations.labels import Fact, Interval
from annotations.methods.names import minted
from annotations.namespaces import (
    ACTIVITY,
    DCTERMS,
    DEFAULT_VOCABULARY,
    LDES,
    RDF_OBJECT,
    RDF_PREDICATE,
    RDF_STATEMENT,
    RDF_SUBJECT,
    RDF_TYPE,
    TREE,
    VOID,
    XSD,
    integer,
)
from annotations.terms import Term, Triple
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.store.protocols import BatchRun, Events

LEAF: Final = 64
"""Batches of a leaf."""
BLOCK: Final = 64
"""Leaves of a block."""
MEMBERS: Final = 1_000
"""Members of a page; a leaf that has more goes on."""
_CREATED: Final = Term(f"<{DCTERMS}created>")
_VERSION_OF: Final = Term(f"<{DCTERMS}isVersionOf>")
_DELETE: Final = Term(f"<{ACTIVITY}Delete>")
_SHACL: Final = "http://www.w3.org/ns/shacl#"


def _ldes(name: str) -> Term:
    return Term(f"<{LDES}{name}>")


def _tree(name: str) -> Term:
    return Term(f"<{TREE}{name}>")


class EventNodes:
    """Writes the nodes of the stream of one dataset.

    Args:
        endpoint: the dataset at its own URL.
        keep: how long events are kept.
    """

    def __init__(self, endpoint: Endpoint, keep: timedelta) -> None:
        self._endpoint = endpoint
        self._keep = keep
        self._url = endpoint.ldes_url
        self._root = Term(f"<{self._url}>")
        self._stream = Term(f"<{self._url}#stream>")

    def root(self, blocks: Sequence[BatchRun], leaves: Sequence[BatchRun]) -> Iterator[Triple]:
        """The first node: of the stream itself, and where it goes on.

        Args:
            blocks: those that the leaves are not of.
            leaves: those of the newest block.
        """
        endpoint, stream, root = self._endpoint, self._stream, self._root
        yield Triple(stream, RDF_TYPE, _ldes("EventStream"))
        yield Triple(stream, Term(f"<{DCTERMS}source>"), endpoint.iri)
        yield from self._about(root)
        if endpoint.vocabulary != DEFAULT_VOCABULARY:
            namespace = Term(f"<{endpoint.vocabulary.temporal}>")
            yield Triple(stream, Term(f"<{VOID}vocabulary>"), namespace)
        yield Triple(stream, _ldes("timestampPath"), _CREATED)
        yield Triple(stream, _ldes("versionOfPath"), _VERSION_OF)
        yield Triple(stream, _ldes("versionDeletePath"), RDF_TYPE)
        yield Triple(stream, _ldes("versionDeleteObject"), _DELETE)
        yield Triple(stream, _ldes("pollingInterval"), integer(max(1, int(endpoint.max_age))))
        retention = Term(f"<{self._url}#retention>")
        duration = Term(f'"PT{int(self._keep.total_seconds())}S"^^<{XSD}duration>')
        yield Triple(root, _ldes("retentionPolicy"), retention)
        yield Triple(retention, RDF_TYPE, _ldes("RetentionPolicy"))
        yield Triple(retention, _ldes("fullLogDuration"), duration)
        yield from self._shape()
        for span in blocks:
            yield from self._relation(root, span, "block")
        for span in leaves:
            yield from self._relation(root, span, "page")

    def block(self, number: int, leaves: Sequence[BatchRun]) -> Iterator[Triple]:
        """A node that leads to leaves."""
        node = Term(f"<{self._url}?block={number}>")
        yield from self._about(node)
        for span in leaves:
            yield from self._relation(node, span, "page")

    def leaf(
        self, number: int, part: int, batches: Sequence[Events]
    ) -> tuple[list[Triple], int, bool]:
        """A page of members, how many it has, and whether the leaf has another part behind it."""
        url = f"{self._url}?page={number}"
        here = url if part == 1 else f"{url}&part={part}"
        first = (part - 1) * MEMBERS
        shown = list(islice(_events(batches), first, first + MEMBERS + 1))
        triples = list(self._about(Term(f"<{here}>")))
        for batch, place, fact in shown[:MEMBERS]:
            # Where it stands on its leaf is part of its name, and not on which part.
            member = Term(f"<{url}#{batch.sequence}-{place}>")
            gone = place < len(batch.gone)
            triples += self._member(member, batch.published, fact, gone=gone)
        more = len(shown) > MEMBERS
        if more:
            triples += self._link(Term(f"<{here}>"), f"{url}&part={part + 1}", "Relation")
        return triples, len(shown), more

    def _about(self, node: Term) -> Iterator[Triple]:
        yield Triple(self._stream, _tree("view"), node)
        yield Triple(node, RDF_TYPE, _tree("Node"))

    def _member(self, member: Term, published: int, fact: Fact, *, gone: bool) -> Iterator[Triple]:
        endpoint = self._endpoint
        tmp, quad = endpoint.vocabulary, endpoint.skolemizer.quad(fact.quad)
        yield Triple(self._stream, _tree("member"), member)
        yield Triple(member, _VERSION_OF, minted("statement", fact, endpoint.view.naming))
        yield Triple(member, _CREATED, instant_term(from_micros(published)))
        yield Triple(member, RDF_TYPE, RDF_STATEMENT)
        yield Triple(member, RDF_SUBJECT, quad.subject)
        yield Triple(member, RDF_PREDICATE, quad.predicate)
        yield Triple(member, RDF_OBJECT, quad.object)
        if quad.graph:
            yield Triple(member, tmp.graph, quad.graph)
        if gone:
            yield Triple(member, RDF_TYPE, _DELETE)
        if isinstance(fact.label, Interval):
            yield Triple(member, tmp.initial, instant_term(fact.label.start))
            yield Triple(member, tmp.final, instant_term(fact.label.end))
        elif fact.label is not None:
            yield Triple(member, tmp.expiration, instant_term(fact.label.end))

    def _relation(self, node: Term, span: BatchRun, kind: str) -> Iterator[Triple]:
        target = f"{self._url}?{kind}={span.number}"
        yield from self._link(node, target, "GreaterThanOrEqualToRelation", span.begin)
        size = LEAF if kind == "page" else LEAF * BLOCK
        if span.last == (span.number + 1) * size:
            yield from self._link(node, target, "LessThanOrEqualToRelation", span.end)

    def _link(
        self, node: Term, target: str, kind: str, value: int | None = None
    ) -> Iterator[Triple]:
        relation = Term(f"<{node[1:-1].partition('#')[0]}#{kind}-{target.rpartition('?')[2]}>")
        yield Triple(node, _tree("relation"), relation)
        yield Triple(relation, RDF_TYPE, _tree(kind))
        yield Triple(relation, _tree("node"), Term(f"<{target}>"))
        if value is not None:
            yield Triple(relation, _tree("path"), _CREATED)
            yield Triple(relation, _tree("value"), instant_term(from_micros(value)))

    def _shape(self) -> Iterator[Triple]:
        """What every member has."""
        shape = Term(f"<{self._url}#shape>")
        yield Triple(self._stream, _tree("shape"), shape)
        yield Triple(shape, RDF_TYPE, Term(f"<{_SHACL}NodeShape>"))
        kinds = {
            "version": (_VERSION_OF, "nodeKind", Term(f"<{_SHACL}IRI>")),
            "created": (_CREATED, "datatype", Term(f"<{XSD}dateTime>")),
        }
        for name, (path, constraint, value) in kinds.items():
            node = Term(f"<{self._url}#shape-{name}>")
            yield Triple(shape, Term(f"<{_SHACL}property>"), node)
            yield Triple(node, Term(f"<{_SHACL}path>"), path)
            yield Triple(node, Term(f"<{_SHACL}minCount>"), integer(1))
            yield Triple(node, Term(f"<{_SHACL}maxCount>"), integer(1))
            yield Triple(node, Term(f"<{_SHACL}{constraint}>"), value)


def _events(batches: Sequence[Events]) -> Iterator[tuple[Events, int, Fact]]:
    """The events of batches in order: first what goes, then what comes."""
    for batch in batches:
        for number, fact in enumerate((*batch.gone, *batch.said)):
            yield batch, number, fact
