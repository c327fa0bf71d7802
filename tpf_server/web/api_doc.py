"""``/api-doc``: the Hydra ApiDocumentation, built with hydra-python-core.

It has a class for every resource, and datasets and views as collections with their search forms.
The library's context is incomplete, so the document gets its own.
"""

import threading
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyoxigraph
from flask import Response
from markupsafe import Markup

from annotations.namespaces import HYDRA, RDF, RDFS, VOID, XSD
from annotations.terms import Term, Triple, literal_parts
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.metadata import mappings
from tpf_server.fragments.writers.base import Chosen
from tpf_server.store.static.ox_terms import read_quads
from tpf_server.web.html import HtmlTable, link, table_page
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.problems import rdf_answer
from tpf_server.web.resources import Resource
from tpf_server.web.responses import html_answer
from tpf_server.web.site import Site

# The vocabularies of time labels and singleton properties, served where their namespaces say.
#
# Source for the terms: Taelman et al. 2016, section 2.2; the rest is this project's.

_FOLDER: Final = Path(__file__).with_name("vocabularies")
_TIME_LABELS: Final = ("Time labels", "time-labels.ttl")
_SINGLETON_PROPERTIES: Final = ("Singleton properties", "singleton-properties.ttl")
_COMMENT: Final = Term(f"<{RDFS}comment>")


class _ServedVocabulary(NamedTuple):
    """A vocabulary that this server serves; its namespace ends with ``#``."""

    namespace: str
    title: str
    file: str

    def triples(self) -> list[Triple]:
        content = (_FOLDER / self.file).read_bytes()
        quads = read_quads(content, pyoxigraph.RdfFormat.TURTLE, base=self.namespace[:-1])
        return [Triple(*quad[:3]) for quad in quads]


def vocabularies(site: Site) -> dict[str, _ServedVocabulary]:
    """Return the vocabularies of the datasets whose namespaces lie on this server, by path."""
    base = site.settings.base
    named = {
        namespace: _ServedVocabulary(namespace, *titled)
        for dataset in site.datasets.values()
        for namespace, titled in (
            (dataset.settings.vocabulary, _TIME_LABELS),
            (dataset.settings.singleton_vocabulary, _SINGLETON_PROPERTIES),
        )
    }
    return {
        "/" + namespace[len(base) : -1]: served
        for namespace, served in named.items()
        if namespace.startswith(base) and namespace.endswith("#")
    }


def vocabulary_document(served: _ServedVocabulary, base: str, chosen: Chosen) -> Response:
    """Return the document of a vocabulary, as HTML or RDF."""
    triples = served.triples()
    if isinstance(chosen.writer, HtmlWriter):
        cell = Markup('<a id="{0}" href="{1}{0}">{0}</a>')
        rows = [
            (
                cell.format(subject[1:-1].removeprefix(served.namespace), served.namespace),
                literal_parts(comment).lexical,
            )
            for subject, predicate, comment in triples
            if predicate == _COMMENT
        ]
        intro = f"The terms of the namespace {served.namespace}"
        table = HtmlTable(("term", "what it says"), rows)
        response = html_answer(table_page(served.title, served.title, base, intro, [table]))
    else:
        response = rdf_answer(triples, chosen)
    response.headers["Cache-Control"] = "public, max-age=3600"
    response.headers["Vary"] = "Accept"
    return response


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
    """A dataset or a view."""
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
