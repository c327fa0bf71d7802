"""The metadata of a page: what it is part of, how much there is, where to go on, what is dynamic.

Sources: the Triple Pattern Fragments and Quad Pattern Fragments specifications of the Hydra W3C
community group; the Hydra Core Vocabulary; VoID. Clients depend on more than these say:

- the page is called exactly what the client asked for;
- ``void:subset`` from the dataset to the page comes *first*: Comunica heeds ``sd:defaultGraph`` of
  the dataset only once it knows that the page belongs to it;
- ``void:subset`` from the fragment to the page comes *after* that, because the same client takes
  the last subject that it sees for the fragment;
- there is exactly one ``hydra:template``.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final

from annotations.instants import from_micros, instant_term
from annotations.namespaces import (
    DCTERMS,
    FOAF,
    HYDRA,
    RDF_OBJECT,
    RDF_PREDICATE,
    RDF_SUBJECT,
    RDF_TYPE,
    SD,
    VOID,
    XSD_INTEGER,
)
from annotations.terms import Term, Triple, literal
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.labels import label_triples
from tpf_server.fragments.pattern import DEFAULT_GRAPH_IRI
from tpf_server.fragments.request import FragmentRequest
from tpf_server.fragments.view import AllMatches, Matches, Rows
from tpf_server.store.protocols import Snapshot


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


def metadata_graph(request: FragmentRequest) -> Term:
    """The graph that holds the metadata of a page."""
    return Term(f"<{request.page_url}#metadata>")


def page_metadata(
    endpoint: Endpoint,
    request: FragmentRequest,
    matches: Matches | AllMatches,
    rows: Rows,
    links: Mapping[str, str],
    snapshot: Snapshot | None,
    earliest_end: datetime | None,
) -> list[Triple]:
    """The triples of the metadata graph of a page."""
    page = Term(f"<{request.page_url}>")
    fragment = Term(f"<{request.fragment_url}>")
    dataset = endpoint.iri
    total = integer(matches.total)
    triples = [
        Triple(metadata_graph(request), _PRIMARY_TOPIC, fragment),
        Triple(dataset, _SUBSET, page),
        *controls(endpoint),
    ]
    if fragment != page:
        triples += [
            Triple(dataset, _SUBSET, fragment),
            Triple(page, _TRIPLES, total),
            Triple(page, _TOTAL, total),
        ]
    triples += [
        Triple(fragment, _SUBSET, page),
        Triple(fragment, RDF_TYPE, _COLLECTION),
        Triple(fragment, _SOURCE, dataset),
        Triple(fragment, _TRIPLES, total),
        Triple(fragment, _TOTAL, total),
        Triple(fragment, _VIEW, page),
        Triple(page, RDF_TYPE, _PARTIAL_VIEW),
        Triple(page, _ITEMS_PER_PAGE, integer(request.limit)),
    ]
    triples += [Triple(page, _PAGES[name], Term(f"<{url}>")) for name, url in links.items()]
    if snapshot is not None and endpoint.states_labels:
        triples += _temporal(endpoint, request, fragment, matches, snapshot, earliest_end)
        if matches.dynamic:
            triples += label_triples(rows, endpoint.vocabulary)
    elif snapshot is not None:
        evaluated_at = endpoint.vocabulary["evaluatedAt"]
        triples.append(Triple(fragment, evaluated_at, instant_term(from_micros(snapshot.instant))))
    return triples


def _temporal(
    endpoint: Endpoint,
    request: FragmentRequest,
    fragment: Term,
    matches: Matches | AllMatches,
    snapshot: Snapshot,
    earliest_end: datetime | None,
) -> Iterator[Triple]:
    tmp = endpoint.vocabulary
    yield Triple(fragment, tmp["dynamicTriples"], integer(matches.dynamic))
    yield Triple(fragment, tmp["annotationMethod"], Term(f'"{endpoint.method.name}"'))
    if matches.dynamic:
        for labelling in matches.labellings():
            yield Triple(fragment, tmp["labelling"], Term(f'"{labelling}"'))
    if earliest_end is not None:
        yield Triple(fragment, tmp["earliestExpiration"], instant_term(earliest_end))
    yield Triple(fragment, tmp["evaluatedAt"], instant_term(from_micros(snapshot.instant)))
    if endpoint.plain_url is not None:
        url = endpoint.plain_url + (f"?{request.query}" if request.query else "")
        yield Triple(fragment, tmp["plainView"], Term(f"<{url}>"))


@lru_cache(maxsize=1024)
def integer(value: int) -> Term:
    """The ``xsd:integer`` literal of a number."""
    return Term(f'"{value}"^^<{XSD_INTEGER}>')


def controls(endpoint: Endpoint) -> list[Triple]:
    """The dataset and its search form, the same on every page of an endpoint."""
    if endpoint.controls is None:
        endpoint.controls = list(_controls(endpoint))
    return endpoint.controls


def _controls(endpoint: Endpoint) -> Iterator[Triple]:
    dataset, form = endpoint.iri, Term("_:form")
    yield Triple(dataset, RDF_TYPE, _DATASET)
    yield Triple(dataset, RDF_TYPE, _COLLECTION)
    yield Triple(dataset, _TITLE, literal(endpoint.title))
    yield Triple(dataset, Term(f"<{SD}defaultGraph>"), DEFAULT_GRAPH_IRI)
    yield Triple(dataset, _hydra("search"), form)
    yield Triple(form, RDF_TYPE, _hydra("IriTemplate"))
    yield Triple(form, _hydra("template"), literal(endpoint.template))
    yield Triple(form, _hydra("variableRepresentation"), _hydra("ExplicitRepresentation"))
    maxima = {"limit": endpoint.max_page_size, "values": endpoint.max_values}
    for name in endpoint.form:
        node = Term(f"_:{name}")
        yield Triple(form, _hydra("mapping"), node)
        yield Triple(node, _hydra("variable"), literal(name))
        yield Triple(node, _hydra("property"), _MAPPINGS[name])
        if name in maxima:
            yield Triple(node, endpoint.vocabulary["maximum"], integer(maxima[name]))
