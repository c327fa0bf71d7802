"""The metadata of a page: its dataset and fragment, counts, controls and labels.

Sources: Triple and Quad Pattern Fragments; Hydra Core Vocabulary; VoID. Clients depend on more:

- the page has exactly the URL that the client requested;
- ``void:subset`` from the dataset to the page comes first, that from the fragment after it;
- there is exactly one ``hydra:template``, with exactly four mappings.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from annotations.instants import from_micros, instant_term
from annotations.labels import Label
from annotations.namespaces import (
    DCTERMS,
    DEFAULT_VOCABULARY,
    FOAF,
    HYDRA,
    RDF_OBJECT,
    RDF_PREDICATE,
    RDF_SUBJECT,
    RDF_TYPE,
    RDFS,
    SD,
    VOID,
    Vocabulary,
    integer,
)
from annotations.terms import DEFAULT_GRAPH, Quad, Term, Triple, literal
from tpf_server.fragments.endpoint import Endpoint, made_once
from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.pattern import DEFAULT_GRAPH_IRI, POSITIONS
from tpf_server.fragments.view import LabelledRows
from tpf_server.settings import is_web_iri
from tpf_server.store.protocols import Snapshot

# The labels of a page's facts, as metadata.
#
# Facts that share predicate, graph and label share a node, because a feed gives the same label to
# all that it says at once. A node reads: every quad on this page with this predicate, one of these
# subjects, in this graph (and, where it is given, with this object) carries this label.

_Spot: TypeAlias = tuple[Term, Term, Term]
# Many labels share their instants.
_instant_term = lru_cache(maxsize=4096)(instant_term)


def _label_triples(page: LabelledRows, vocabulary: Vocabulary) -> list[Triple]:
    columns, labels = page
    positions = list(zip(columns.subjects, columns.predicates, columns.graphs, strict=True))
    spots: dict[_Spot, Label | None] = {}
    ambiguous: set[_Spot] = set()
    for spot, label in zip(positions, labels, strict=True):
        first_label = spots.setdefault(spot, label)
        # Labels of one batch are one object, and comparing those takes longer than looking.
        if first_label is not label and first_label != label:
            ambiguous.add(spot)
    shared: dict[tuple[Term, Term, Label], dict[Term, None]] = {}
    single: list[tuple[_Spot, Term, Label]] = []
    for spot, value, label in zip(positions, columns.objects, labels, strict=True):
        if label is None:
            continue
        if ambiguous and spot in ambiguous:
            single.append((spot, value, label))
        else:
            subject, predicate, graph = spot
            shared.setdefault((predicate, graph, label), {})[subject] = None
    triples: list[Triple] = []
    nodes = _nodes()
    for (predicate, graph, label), subjects in shared.items():
        triples += _node(next(nodes), label, predicate, subjects, graph, vocabulary)
    for (subject, predicate, graph), value, label in single:
        node = next(nodes)
        triples += _node(node, label, predicate, (subject,), graph, vocabulary)
        triples.append(Triple(node, vocabulary["object"], value))
    return triples


def _nodes() -> Iterator[Term]:
    number = 0
    while True:
        number += 1
        yield Term(f"_:l{number}")


def _node(
    node: Term,
    label: Label,
    predicate: Term,
    subjects: Iterable[Term],
    graph: Term,
    vocabulary: Vocabulary,
) -> Iterator[Triple]:
    if label.start is None:
        yield Triple(node, vocabulary.expiration, _instant_term(label.end))
    elif label.instant is not None:
        yield Triple(node, vocabulary.instant, _instant_term(label.instant))
    else:
        yield Triple(node, vocabulary.initial, _instant_term(label.start))
        yield Triple(node, vocabulary.final, _instant_term(label.end))
    yield Triple(node, vocabulary["predicate"], predicate)
    says_subject = vocabulary["subject"]
    for subject in subjects:
        yield Triple(node, says_subject, subject)
    if graph != DEFAULT_GRAPH:
        yield Triple(node, vocabulary["graph"], graph)


def _hydra(name: str) -> Term:
    return Term(f"<{HYDRA}{name}>")


_SUBSET: Final = Term(f"<{VOID}subset>")
_TRIPLES: Final = Term(f"<{VOID}triples>")
_DATASET: Final = Term(f"<{VOID}Dataset>")
_COLLECTION: Final = _hydra("Collection")
_TOTAL: Final = _hydra("totalItems")
_VIEW: Final = _hydra("view")
_PARTIAL_VIEW: Final = _hydra("PartialCollectionView")
_ITEMS_PER_PAGE: Final = _hydra("itemsPerPage")
_PRIMARY_TOPIC: Final = Term(f"<{FOAF}primaryTopic>")
_TITLE: Final = Term(f"<{DCTERMS}title>")
_SOURCE: Final = Term(f"<{DCTERMS}source>")
_PAGES: Final = {name: _hydra(name) for name in ("first", "previous", "next", "last")}
_MAPPINGS: Final = {
    "subject": RDF_SUBJECT,
    "predicate": RDF_PREDICATE,
    "object": RDF_OBJECT,
    "graph": Term(f"<{SD}graph>"),
    "limit": _hydra("limit"),
    "values": Term("<http://vocab.org/brtpf#values>"),
}


class Controls(NamedTuple):
    """The dataset and its search form, the same on every page: as triples and as N-Triples."""

    triples: list[Triple]
    lines: str


class Metadata(NamedTuple):
    """The metadata graph of a page, in the order that clients need."""

    graph: Term
    before: list[Triple]
    controls: Controls
    after: list[Triple]
    labels: list[Triple]


class Mapping(NamedTuple):
    """A variable of the form's template.

    Args:
        via: the property that links the form to it.
        maximum: the largest value, or the most rows.
    """

    variable: str
    property: Term
    via: Term
    maximum: int | None


def metadata(page: Fragment) -> Metadata:
    """Return the metadata graph of a page."""
    query = page.query
    endpoint, request = query.endpoint, query.request
    url = Term(f"<{request.page_url}>")
    fragment = Term(f"<{request.fragment_url}>")
    dataset = endpoint.iri
    graph = Term(f"<{request.page_url}#metadata>")
    total = integer(page.total)
    triples = []
    if fragment != url:
        triples += [
            _triple(dataset, _SUBSET, fragment),
            _triple(url, _TRIPLES, total),
            _triple(url, _TOTAL, total),
        ]
    triples += [
        _triple(fragment, _SUBSET, url),
        _triple(fragment, RDF_TYPE, _COLLECTION),
        _triple(fragment, _SOURCE, dataset),
        _triple(fragment, _TRIPLES, total),
        _triple(fragment, _TOTAL, total),
        _triple(fragment, _VIEW, url),
        _triple(url, RDF_TYPE, _PARTIAL_VIEW),
        _triple(url, _ITEMS_PER_PAGE, integer(request.limit)),
    ]
    triples += [_triple(url, _PAGES[name], Term(f"<{to}>")) for name, to in page.links.items()]
    triples += changing(page)
    before = [_triple(graph, _PRIMARY_TOPIC, fragment), _triple(dataset, _SUBSET, url)]
    return Metadata(graph, before, controls(endpoint), triples, labels_of(page))


def labels_of(page: Fragment) -> list[Triple]:
    """Return the labels of a page's facts."""
    endpoint = page.query.endpoint
    if page.query.snapshot is None or not endpoint.states_labels or not page.dynamic:
        return []
    return _label_triples(page.rows, endpoint.vocabulary)


def changing(page: Fragment) -> list[Triple]:
    """Return the metadata that change over time, but for the labels."""
    query = page.query
    if query.snapshot is None:
        return []
    endpoint, fragment = query.endpoint, Term(f"<{query.request.fragment_url}>")
    if endpoint.states_labels:
        triples = list(_temporal(page, fragment, query.snapshot))
    else:
        instant = instant_term(from_micros(query.snapshot.instant))
        triples = [Triple(fragment, endpoint.vocabulary["evaluatedAt"], instant)]
    # Where a label ends first, that is said already.
    change = query.state.next_change
    if change is not None and not (endpoint.states_labels and change == page.earliest_end):
        property_ = endpoint.vocabulary["nextChange"]
        triples.append(Triple(fragment, property_, instant_term(change)))
    return triples


def _triple(*terms: Term) -> Triple:
    # What the constructor of a named tuple does, in half the time.
    return tuple.__new__(Triple, terms)


def _temporal(page: Fragment, fragment: Term, snapshot: Snapshot) -> Iterator[Triple]:
    endpoint, request = page.query.endpoint, page.query.request
    tmp = endpoint.vocabulary
    yield Triple(fragment, tmp["dynamicTriples"], integer(page.dynamic))
    yield Triple(fragment, tmp["annotationMethod"], Term(f'"{endpoint.method.name}"'))
    for labelling in page.labellings:
        yield Triple(fragment, tmp["labelling"], Term(f'"{labelling}"'))
    if page.earliest_end is not None:
        yield Triple(fragment, tmp["earliestExpiration"], instant_term(page.earliest_end))
    yield Triple(fragment, tmp["evaluatedAt"], instant_term(from_micros(snapshot.instant)))
    if endpoint.plain_url is not None:
        url = endpoint.plain_url + (f"?{request.query}" if request.query else "")
        yield Triple(fragment, tmp["plainView"], Term(f"<{url}>"))


def triple_lines(triples: Iterable[Triple | Quad]) -> str:
    """Return lines of N-Triples; graphs are dropped."""
    return "".join([f"{row[0]} {row[1]} {row[2]} .\n" for row in triples])


@made_once
def controls(endpoint: Endpoint) -> Controls:
    """Return the dataset and its search form."""
    triples = list(_controls(endpoint))
    return Controls(triples, triple_lines(triples))


def _controls(endpoint: Endpoint) -> Iterator[Triple]:
    dataset, form = endpoint.iri, Term("_:form")
    yield Triple(dataset, RDF_TYPE, _DATASET)
    yield Triple(dataset, RDF_TYPE, _COLLECTION)
    yield from about_dataset(endpoint)
    yield Triple(dataset, Term(f"<{SD}defaultGraph>"), DEFAULT_GRAPH_IRI)
    if endpoint.vocabulary != DEFAULT_VOCABULARY:
        # Clients know the default one.
        namespace = Term(f"<{endpoint.vocabulary.temporal}>")
        yield Triple(dataset, Term(f"<{VOID}vocabulary>"), namespace)
    if endpoint.changes_url:
        property_ = endpoint.vocabulary["changes"]
        yield Triple(dataset, property_, Term(f"<{endpoint.changes_url}>"))
    if endpoint.ldes_url:
        yield Triple(dataset, Term(f"<{RDFS}seeAlso>"), Term(f"<{endpoint.ldes_url}>"))
    yield Triple(dataset, _hydra("search"), form)
    yield Triple(form, RDF_TYPE, _hydra("IriTemplate"))
    yield Triple(form, _hydra("template"), literal(endpoint.template))
    yield Triple(form, _hydra("variableRepresentation"), _hydra("ExplicitRepresentation"))
    for mapping in mappings(endpoint):
        node = Term(f"_:{mapping.variable}")
        yield Triple(form, mapping.via, node)
        yield Triple(node, _hydra("variable"), literal(mapping.variable))
        yield Triple(node, _hydra("property"), mapping.property)
        if mapping.maximum is not None:
            yield Triple(node, endpoint.vocabulary["maximum"], integer(mapping.maximum))


def about_dataset(endpoint: Endpoint) -> Iterator[Triple]:
    """Describe a dataset: title, subject, publisher, license."""
    dataset, own = endpoint.iri, endpoint.dataset.settings
    yield Triple(dataset, _TITLE, literal(endpoint.title))
    if own.description:
        yield Triple(dataset, Term(f"<{DCTERMS}description>"), literal(own.description))
    if endpoint.license is not None:
        yield Triple(dataset, Term(f"<{DCTERMS}license>"), endpoint.license)
    yield from published_by(dataset, own.publisher, f"{endpoint.url}#publisher")


def published_by(what: Term, publisher: str, name: str) -> Iterator[Triple]:
    """Describe a publisher."""
    if not publisher:
        return
    agent = Term(f"<{publisher if is_web_iri(publisher) else name}>")
    if agent == f"<{name}>":
        yield Triple(agent, RDF_TYPE, Term(f"<{FOAF}Agent>"))
        yield Triple(agent, Term(f"<{FOAF}name>"), literal(publisher))
    yield Triple(what, Term(f"<{DCTERMS}publisher>"), agent)


def mappings(endpoint: Endpoint) -> Iterator[Mapping]:
    """Return the variables of the form's template."""
    maxima = {"limit": endpoint.max_page_size, "values": endpoint.max_values}
    for name in endpoint.form:
        # Comunica takes a form with any other mapping for none at all, and downloads everything.
        via = _hydra("mapping") if name in POSITIONS else endpoint.vocabulary["mapping"]
        meaning = _MAPPINGS.get(name) or endpoint.vocabulary[name]
        yield Mapping(name, meaning, via, maxima.get(name))
