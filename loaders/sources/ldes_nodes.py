"""A node of a Linked Data Event Stream: its members, and where it leads.

Sources: *Linked Data Event Streams*, version 1.0; the TREE hypermedia specification, which has a
member be all that is said of it, with blank nodes, and what stands in a graph of its name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import pyoxigraph as ox

from annotations.errors import AnnotationError, NestingError
from annotations.instants import instant_of_term
from annotations.namespaces import LDES, TREE, VOID
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    Term,
    Triple,
    is_blank_node,
    is_iri,
    is_triple_term,
    triple_of_term,
    triple_term,
)
from loaders.errors import InputError
from tpf_server.store.static.ox_terms import read_quads

ACCEPT: Final = (
    "application/trig, application/n-quads;q=0.9, text/turtle;q=0.8, application/n-triples;q=0.7, "
    "application/ld+json;q=0.5"
)
_MEMBER: Final = Term(f"<{TREE}member>")
_VIEW: Final = Term(f"<{TREE}view>")
_RELATION: Final = Term(f"<{TREE}relation>")
_NODE: Final = Term(f"<{TREE}node>")
_NAMES: Final = (
    "timestampPath", "versionOfPath", "versionDeletePath", "versionDeleteObject", "immutable",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a stream.

    Args:
        name: its IRI.
        quads: what is said of it, without blank nodes.
    """

    name: Term
    quads: tuple[Quad, ...]


@dataclass(frozen=True, slots=True)
class LdesNode:
    """A node.

    Args:
        members: those that it has.
        leads_to: the URLs that its relations name, in order.
        views: the URLs of roots, as it says.
        about: what it says of the stream: objects by their names in the vocabulary of LDES, and
            the namespace that its labels are in.
    """

    members: tuple[Member, ...] = ()
    leads_to: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    about: Mapping[str, Term] = field(default_factory=dict)


def read_node(content: bytes, media_type: str, url: str) -> LdesNode:
    """The node that an answer holds.

    Raises:
        InputError: it is no RDF, or says nothing of a stream.
    """
    essence = media_type.partition(";")[0].strip().lower()
    form = ox.RdfFormat.from_media_type(essence) if essence else None
    if form is None:
        raise InputError(f"answers with {essence or 'no media type'} instead of RDF", url)
    try:
        quads = list(read_quads(content, form, base=url))
    except NestingError as error:
        raise InputError(error.reason, url, error.line) from None
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InputError(f"malformed {essence} ({reason})", url) from None
    said: dict[Term, list[Quad]] = {}
    graphs: dict[Term, list[Quad]] = {}
    for quad in quads:
        said.setdefault(quad.subject, []).append(quad)
        if quad.graph:
            graphs.setdefault(quad.graph, []).append(quad)
    names = dict.fromkeys(quad.object for quad in quads if quad.predicate == _MEMBER)
    relations = {quad.object for quad in quads if quad.predicate == _RELATION}
    targets = [q.object for q in quads if q.predicate == _NODE and q.subject in relations]
    views = [quad.object for quad in quads if quad.predicate == _VIEW]
    stated = {Term(f"<{LDES}{name}>"): name for name in _NAMES}
    stated[Term(f"<{VOID}vocabulary>")] = "vocabulary"
    about: dict[str, Term] = {}
    for quad in quads:
        if quad.predicate in stated:
            about.setdefault(stated[quad.predicate], quad.object)
    if not (names or targets or views or about):
        raise InputError("is no node of an event stream: no tree:view, no tree:member", url)
    return LdesNode(
        tuple(_member(name, said, graphs.get(name, ()), url) for name in names),
        tuple(dict.fromkeys(_url(each, url) for each in targets)),
        tuple(dict.fromkeys(_url(each, url) for each in views)),
        about,
    )


def instant_of(member: Member, path: Term, place: str) -> datetime:
    """What a member says when it was made.

    Raises:
        InputError: it does not, or with no time zone.
    """
    for quad in member.quads:
        if quad.subject == member.name and quad.predicate == path:
            try:
                return instant_of_term(quad.object)
            except AnnotationError as error:
                raise InputError(f"member {member.name}: {error}", place) from None
    raise InputError(f"member {member.name} has no {path}", place)


def _member(
    name: Term, said: Mapping[Term, list[Quad]], of_graph: Iterable[Quad], url: str
) -> Member:
    if not is_iri(name):
        raise InputError(f"a member without a name: {name}", url)
    found: dict[Quad, None] = {}
    waiting, seen = [name], {name}
    for quad in of_graph:
        found[quad] = None
        waiting += [part for part in (quad.subject, quad.object) if is_blank_node(part)]
    while waiting:
        for quad in said.get(waiting.pop(), ()):
            found[quad] = None
            if is_blank_node(quad.object) and quad.object not in seen:
                seen.add(quad.object)
                waiting.append(quad.object)
    # A blank node means nothing outside its document.
    names: dict[Term, Term] = {}

    def shown(term: Term) -> Term:
        if is_triple_term(term):
            return triple_term(Triple(*map(shown, triple_of_term(term))))
        if not is_blank_node(term):
            return term
        return names.setdefault(term, Term(f"{name[:-1]}#genid-{len(names)}>"))

    # A graph of the member's name is there to hold it, and is none of what it says.
    rows = (Quad(shown(s), p, shown(o), DEFAULT_GRAPH if g == name else g) for s, p, o, g in found)
    return Member(name, tuple(dict.fromkeys(rows)))


def _url(term: Term, place: str) -> str:
    if not is_iri(term):
        raise InputError(f"leads to {term}, which is no URL", place)
    return term[1:-1].partition("#")[0]
