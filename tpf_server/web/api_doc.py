"""``/api-doc``: the Hydra ApiDocumentation, built with hydra-python-core.

It says what the rules of Flask (`RESOURCES`) and the controls of pages (`mappings`) say, because it
is made of these: a class for every resource, with what can be done; a link, or a template of links,
from the entry point to each; and the datasets and views as collections, each with its search form.

The library's generated context leaves ``SupportedProperty``, ``Error``, ``Status`` and
``Collection`` undefined and binds ``xsd`` to a web page, and every status embeds a remote context;
so the document gets a whole context of its own, and those of the parts are removed.
"""

import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from annotations.namespaces import HYDRA, RDF, RDFS, VOID, XSD
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.metadata import mappings
from tpf_server.web.resources import Resource
from tpf_server.web.site import Site

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
    204: ("No content", "It was done; there is nothing to say."),
    303: ("See other", "Location is the page that tells."),
    304: ("Not modified", "The client's copy is still right."),
    400: ("Bad request", "A term, page, label or body is malformed; the detail quotes it."),
    401: ("Unauthorized", "It needs the bearer token."),
    403: ("Forbidden", "It is off."),
    404: ("Not found", "There is no such thing."),
    405: ("Method not allowed", "The Allow header says which methods are."),
    406: ("Not acceptable", "None of the formats that the client accepts can be made."),
    409: ("Conflict", "The state of what is there does not allow it."),
    410: ("Snapshot expired", "The page is no longer kept; start again at the first one."),
    411: ("Length required", "The body does not say how long it is."),
    413: ("Body too large", "The body is over the server's limit."),
    415: ("Unsupported media type", "The body is in no format of RDF that the server reads."),
    422: ("Facts refused", "A fact has no label, has ended or overlaps another; nothing changed."),
    503: ("Busy", "Too many bodies are arriving; Retry-After says when to try again."),
}
_PAGE_PROPERTIES = ("totalItems", "view", "search")
# The library keeps the address of the document in a global variable.
_one_at_a_time = threading.Lock()


def api_documentation(site: Site, base: str, resources: Mapping[str, Resource]) -> dict[str, Any]:
    """The documentation, as JSON-LD without remote contexts.

    Args:
        site: the datasets.
        base: URL of the server.
        resources: what there is, by the names of the rules.
    """
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
    """A dataset or a view, with its form and with where its facts are published."""
    from hydra_python_core import doc_writer as hydra

    form: dict[str, Any] = hydra.HydraIriTemplate(
        endpoint.template.removeprefix(base.rstrip("/")), basic_representation=False
    ).generate()
    for mapping in mappings(endpoint):
        entry = hydra.IriTemplateMapping(mapping.variable, _bare(mapping.property)).generate()
        if mapping.maximum is not None:
            entry[endpoint.vocabulary["maximum"].strip("<>")] = mapping.maximum
        form.setdefault(_bare(mapping.via), []).append(entry)
    found = {
        "@id": _bare(endpoint.iri),
        "@type": ["Collection", "void:Dataset"],
        "title": endpoint.title,
        "search": form,
    }
    dataset = endpoint.dataset
    if endpoint.path == dataset.settings.name and dataset.live is not None:
        found[f"{base}api-doc#facts"] = {"@id": f"{endpoint.url}/facts"}
    return found


def _bare(iri: str) -> str:
    return iri.removeprefix("<").removesuffix(">")


def _clean(value: Any) -> Any:
    """The value without contexts inside, prefixes of Hydra, nulls and empty lists."""
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
