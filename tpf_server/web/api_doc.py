"""``/api-doc``: the Hydra ApiDocumentation, built with hydra-python-core.

It has a class for every resource, and datasets and views as collections with their search forms.
The library's context is incomplete, so the document gets its own.
"""

import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from flask import Response
from markupsafe import Markup

from annotations.namespaces import DCTERMS, HYDRA, RDF, RDF_TYPE, RDFS, VOID, XSD
from annotations.terms import Term, Triple, literal
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.metadata import mappings
from tpf_server.fragments.writers.base import Chosen
from tpf_server.web.html import HtmlTable, link, table_page
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.problems import rdf_answer
from tpf_server.web.resources import Resource
from tpf_server.web.responses import html_answer
from tpf_server.web.site import Site

# The vocabulary of time labels as a document, served where its namespace says.
#
# Source for the terms: Taelman et al. 2016, section 2.2; the rest is this project's.


class _VocabularyTerm(NamedTuple):
    """A property of a vocabulary; `range` is the class of its values, ``""``: anything."""

    name: str
    comment: str
    range: str = ""


_INSTANT: Final = XSD + "dateTime"
_NUMBER: Final = XSD + "integer"
TEMPORAL_TERMS: Final = (
    _VocabularyTerm("expiration", "The subject holds until this instant.", _INSTANT),
    _VocabularyTerm("instant", "The subject holds at this instant only.", _INSTANT),
    _VocabularyTerm("interval", "The subject holds in this interval."),
    _VocabularyTerm("initial", "The first instant of an interval.", _INSTANT),
    _VocabularyTerm("final", "The first instant after an interval.", _INSTANT),
    _VocabularyTerm("intervalInitial", "Older form of initial, on what is labelled.", _INSTANT),
    _VocabularyTerm("intervalFinal", "Older form of final, on what is labelled.", _INSTANT),
    _VocabularyTerm("graph", "The graph of the labelled facts."),
    _VocabularyTerm("predicate", "The predicate of facts of this page that carry this label."),
    _VocabularyTerm("subject", "The subjects of facts of this page that carry this label."),
    _VocabularyTerm("object", "The objects of facts of this page that carry this label."),
    _VocabularyTerm("dynamicTriples", "How many of the matches carry a label.", _NUMBER),
    _VocabularyTerm("annotationMethod", "How labelled facts are shown.", XSD + "string"),
    _VocabularyTerm("labelling", "A kind of label that matches carry.", XSD + "string"),
    _VocabularyTerm(
        "updatesPerHour", "How many labelled facts were published in the last hour.", _NUMBER
    ),
    _VocabularyTerm("earliestExpiration", "When the first label of a match ends.", _INSTANT),
    _VocabularyTerm("nextChange", "When the first label of a match ends or begins.", _INSTANT),
    _VocabularyTerm("evaluatedAt", "The instant that the page shows.", _INSTANT),
    _VocabularyTerm("plainView", "The same pattern where labelled facts stand for themselves."),
    _VocabularyTerm("mapping", "A variable of the form that is no position of a pattern."),
    _VocabularyTerm("maximum", "The largest value, or the most rows, of a variable.", _NUMBER),
    _VocabularyTerm("changes", "Where server-sent events tell what changes in the dataset."),
    _VocabularyTerm("at", "The instant whose facts are asked for.", _INSTANT),
    _VocabularyTerm("known", "Until when what was published counts.", _INSTANT),
)
SINGLETON_TERMS: Final = (
    _VocabularyTerm("singletonPropertyOf", "The property that a singleton property stands for."),
)


class _ServedVocabulary(NamedTuple):
    """A vocabulary that this server serves; its namespace ends with ``#``."""

    namespace: str
    title: str
    terms: tuple[_VocabularyTerm, ...]


def vocabularies(site: Site) -> dict[str, _ServedVocabulary]:
    """Return the vocabularies of the datasets whose namespaces lie on this server, by path."""
    base = site.settings.base
    named = {
        namespace: _ServedVocabulary(namespace, title, terms)
        for dataset in site.datasets.values()
        for namespace, title, terms in (
            (dataset.settings.vocabulary, "Time labels", TEMPORAL_TERMS),
            (dataset.settings.singleton_vocabulary, "Singleton properties", SINGLETON_TERMS),
        )
    }
    return {
        "/" + namespace[len(base) : -1]: served
        for namespace, served in named.items()
        if namespace.startswith(base) and namespace.endswith("#")
    }


def vocabulary_document(served: _ServedVocabulary, base: str, chosen: Chosen) -> Response:
    """Return the document of a vocabulary, as HTML or RDF."""
    namespace, title, terms = served
    if isinstance(chosen.writer, HtmlWriter):
        table = HtmlTable(
            ("term", "what it says"),
            [
                (
                    Markup('<a id="{0}" href="{1}{0}">{0}</a>').format(each.name, namespace),
                    each.comment,
                )
                for each in terms
            ],
        )
        intro = f"The terms of the namespace {namespace}"
        response = html_answer(table_page(title, title, base, intro, [table]))
    else:
        response = rdf_answer(list(_triples(namespace, title, terms)), chosen)
    response.headers["Cache-Control"] = "public, max-age=3600"
    response.headers["Vary"] = "Accept"
    return response


def _triples(namespace: str, title: str, terms: tuple[_VocabularyTerm, ...]) -> Iterator[Triple]:
    document = Term(f"<{namespace[:-1]}>")
    yield Triple(document, RDF_TYPE, Term("<http://www.w3.org/2002/07/owl#Ontology>"))
    yield Triple(document, Term(f"<{DCTERMS}title>"), literal(title))
    for term in terms:
        iri = Term(f"<{namespace}{term.name}>")
        yield Triple(iri, RDF_TYPE, Term(f"<{RDF}Property>"))
        yield Triple(iri, Term(f"<{RDFS}label>"), literal(term.name))
        yield Triple(iri, Term(f"<{RDFS}comment>"), literal(term.comment))
        yield Triple(iri, Term(f"<{RDFS}isDefinedBy>"), document)
        if term.range:
            yield Triple(iri, Term(f"<{RDFS}range>"), Term(f"<{term.range}>"))


_CONTEXT: dict[str, Any] = {
    "@vocab": HYDRA,
    "hydra": HYDRA,
    "rdf": RDF,
    "rdfs": RDFS,
    "xsd": XSD,
    "void": VOID,
    "label": "rdfs:label",
    **{
        name: {"@id": f"{space}:{name}", "@type": "@id"}
        for space, names in {
            "hydra": ("entrypoint", "property", "expects", "returns", "supportedClass",
                      "supportedProperty", "supportedOperation", "possibleStatus", "search",
                      "collection", "mapping", "variableRepresentation"),
            "rdfs": ("domain", "range", "subClassOf"),
        }.items()
        for name in names
    },
}  # fmt: skip
_STATUSES = {
    201: ("Created", "It is there, or was published, durably."),
    204: ("No content", "It was done."),
    303: ("See other", "Location is the page about it."),
    304: ("Not modified", "The client's copy is still right."),
    400: ("Bad request", "A term, page, label or body is malformed; the detail quotes it."),
    401: ("Unauthorized", "It needs the bearer token."),
    403: ("Forbidden", "The server or the dataset does not offer it."),
    404: ("Not found", "There is no such thing."),
    405: ("Method not allowed", "The Allow header says which methods are."),
    406: ("Not acceptable", "None of the formats that the client accepts can be made."),
    409: ("Conflict", "The name is taken, or queries use the stream."),
    410: ("Gone", "The page or event is no longer kept; start again at the first one."),
    411: ("Length required", "The body does not say how long it is."),
    413: ("Body too large", "The body is over the server's limit."),
    415: ("Unsupported media type", "The body is in no format of RDF that the server reads."),
    422: ("Refused", "A label is missing, over or overlaps; or the query is not supported."),
    429: ("Limit reached", "More queries, or rows of one, than the server allows."),
    503: ("Unavailable", "A store fails, or there are too many bodies or followers: try later."),
}


def documentation_page(site: Site, base: str, resources: Mapping[str, Resource]) -> str:
    """Return the documentation for people."""
    urls = [
        (
            link(base + each.template, each.rule) if "<" not in each.rule else f"/{each.template}",
            each.about,
            ", ".join(f"{name}: {operation.title}" for name, operation in each.operations.items()),
        )
        for each in resources.values()
    ]
    forms = [
        (link(endpoint.url, endpoint.title), endpoint.template)
        for endpoint in site.endpoints(base).values()
    ]
    return table_page(
        "Interface",
        site.settings.title,
        base,
        "The URLs of this server, and the form of each dataset. Programs get this page as a Hydra "
        "ApiDocumentation, in JSON-LD.",
        [HtmlTable(("URL", "what", "methods"), urls), HtmlTable(("dataset", "form"), forms)],
    )


_PAGE_PROPERTIES = ("totalItems", "view", "search")
# The library keeps the address of the document in a global variable.
_one_at_a_time = threading.Lock()


def api_documentation(site: Site, base: str, resources: Mapping[str, Resource]) -> dict[str, Any]:
    """Return the documentation, as JSON-LD without remote contexts."""
    from hydra_python_core import doc_writer as hydra

    def class_of(name: str | None) -> str | None:
        if name is None or name not in resources:
            return name
        return f"{base}api-doc#{name.capitalize()}"

    with _one_at_a_time:
        document = hydra.HydraDoc(
            "api-doc", site.settings.title, "Fragments of linked data", "", base, "doc"
        )
        index = document.entrypoint.entrypoint
        index.supportedOperation = []
        entrypoint: dict[str, Any] = {"@id": base, "@type": index.id_}
        for name, resource in resources.items():
            described = index
            if name != "index":
                described = hydra.HydraClass(name, resource.about, _id=class_of(name))
                document.add_supported_class(described)
                link = hydra.HydraLink(
                    f"{base}api-doc#{name}", name, resource.about, index.id_, described.id_
                )
                index.add_supported_prop(hydra.HydraClassProp(link, name, True, False, False))
                entrypoint[link.id_] = _address(base, resource)
            if name in ("fragment", "view"):
                for each in _PAGE_PROPERTIES:
                    described.add_supported_prop(
                        hydra.HydraClassProp(HYDRA + each, each, True, False, each == "totalItems")
                    )
            for method, operation in resource.operations.items():
                described.add_supported_op(
                    hydra.HydraClassOp(
                        operation.title, method, class_of(operation.expects),
                        class_of(operation.returns),
                        possible_status=[_status(code) for code in operation.statuses],
                    )
                )  # fmt: skip
        document.add_possible_status(_status(HTTPStatus.METHOD_NOT_ALLOWED))
        entrypoint["collection"] = [
            _collection(endpoint, base) for endpoint in site.endpoints(base).values()
        ]
        generated: dict[str, Any] = document.generate()
    generated |= {"@id": f"{base}api-doc", "entrypoint": entrypoint}
    return {"@context": _CONTEXT, **_clean(generated)}


def _status(code: int) -> Any:
    from hydra_python_core import doc_writer as hydra

    title, text = _STATUSES[code]
    kind = hydra.HydraError if code >= HTTPStatus.BAD_REQUEST else hydra.HydraStatus
    return kind(code, title=title, desc=text)


def _address(base: str, resource: Resource) -> dict[str, Any]:
    template = resource.template
    if "{" not in template:
        return {"@id": base + template}
    return {"@type": "IriTemplate", "template": base + template}


def _collection(endpoint: Endpoint, base: str) -> dict[str, Any]:
    """Return a dataset or a view, with its form and the URL to publish at."""
    from hydra_python_core import doc_writer as hydra

    form: dict[str, Any] = hydra.HydraIriTemplate(
        endpoint.template.removeprefix(base.rstrip("/")), basic_representation=False
    ).generate()
    for mapping in mappings(endpoint):
        entry = hydra.IriTemplateMapping(mapping.variable, _bare(mapping.property)).generate()
        if mapping.maximum is not None:
            entry[endpoint.vocabulary["maximum"].strip("<>")] = mapping.maximum
        form.setdefault(_bare(mapping.via), []).append(entry)
    results = {
        "@id": _bare(endpoint.iri),
        "@type": ["Collection", "void:Dataset"],
        "title": endpoint.title,
        "search": form,
    }
    dataset = endpoint.dataset
    if endpoint.path == dataset.settings.name and dataset.live is not None:
        results[f"{base}api-doc#facts"] = {"@id": f"{endpoint.url}/facts"}
    return results


def _bare(iri: str) -> str:
    return iri.removeprefix("<").removesuffix(">")


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        cleaned = {
            name.removeprefix("hydra:"): _clean(item)
            for name, item in value.items()
            if name != "@context"
        }
        return {name: item for name, item in cleaned.items() if item not in (None, [], "")}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
