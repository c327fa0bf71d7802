"""``/api-doc``: the Hydra ApiDocumentation, built with hydra-python-core.

Its generated context leaves ``SupportedProperty``, ``Error``, ``Status`` and ``Collection``
undefined and binds ``xsd`` to a web page, and every status embeds a remote context; so the
document gets a whole context of its own, and those of the parts are removed.
"""

import threading
from typing import Any

from annotations.namespaces import HYDRA, RDF, RDFS, VOID, XSD
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
                      "supportedProperty", "supportedOperation", "possibleStatus"),
            "rdfs": ("domain", "range", "subClassOf"),
        }.items()
        for name in names
    },
}  # fmt: skip
_STATUSES = {
    304: ("Not modified", "The client's copy is still right."),
    400: ("Bad request", "A term, page, label or body is malformed; the detail quotes it."),
    401: ("Unauthorized", "Publishing needs the dataset's bearer token."),
    403: ("Forbidden", "Publishing is off."),
    404: ("Not found", "There is no such dataset or view."),
    405: ("Method not allowed", "The Allow header says which methods are."),
    406: ("Not acceptable", "None of the formats that the client accepts can be made."),
    410: ("Snapshot expired", "The page is no longer kept; start again at the first one."),
    411: ("Length required", "The body does not say how long it is."),
    413: ("Body too large", "The body is over the server's limit."),
    415: ("Unsupported media type", "The body is in no format of RDF that the server reads."),
    422: ("Facts refused", "A fact has no label, has ended or overlaps another; nothing changed."),
    503: ("Busy", "Too many bodies are arriving; Retry-After says when to try again."),
}
_READ = (304, 400, 404, 406, 410)
_PUBLISH = (400, 401, 403, 411, 413, 415, 422, 503)
# The library keeps the address of the document in a global variable.
_one_at_a_time = threading.Lock()


def api_documentation(site: Site, base: str) -> dict[str, Any]:
    """The documentation, as JSON-LD without remote contexts."""
    from hydra_python_core import doc_writer as hydra

    def statuses(codes: tuple[int, ...]) -> list[Any]:
        return [
            hydra.HydraError(code, title=_STATUSES[code][0], desc=_STATUSES[code][1])
            for code in codes
        ]

    with _one_at_a_time:
        document = hydra.HydraDoc(
            "api-doc", site.settings.title, "Fragments of linked data", "", base, "doc"
        )
        fragment = hydra.HydraClass(
            "Fragment",
            "A page of the quads that match a pattern, with counts, links and labels.",
            _id=f"{base}api-doc#Fragment",
        )
        for name in ("totalItems", "view", "search"):
            fragment.add_supported_prop(
                hydra.HydraClassProp(HYDRA + name, name, True, False, name == "totalItems")
            )
        document.add_supported_class(fragment)
        for path, endpoint in site.endpoints(base).items():
            described = hydra.HydraClass(
                endpoint.title,
                f"What {endpoint.title} says, as {endpoint.template}.",
                path=path,
                _id=f"{endpoint.url}#class",
            )
            described.add_supported_op(
                hydra.HydraClassOp(
                    f"Read {endpoint.title}", "GET", None, fragment.id_,
                    possible_status=statuses(_READ),
                )
            )  # fmt: skip
            if path == endpoint.dataset.settings.name and endpoint.dataset.live is not None:
                described.add_supported_op(
                    hydra.HydraClassOp(
                        f"Publish labelled facts at {endpoint.url}/facts", "POST",
                        RDF + "Statement", None, possible_status=statuses(_PUBLISH),
                    )
                )  # fmt: skip
            document.add_supported_class(described)
        document.add_possible_status(
            hydra.HydraStatus(405, title=_STATUSES[405][0], desc=_STATUSES[405][1])
        )
        document.gen_EntryPoint()
        generated: dict[str, Any] = _clean(document.generate())
    generated |= {"@context": _CONTEXT, "@id": f"{base}api-doc", "entrypoint": base}
    return generated


def _clean(value: Any) -> Any:
    """The value without contexts inside, without nulls and without empty lists."""
    if isinstance(value, dict):
        cleaned = {name: _clean(item) for name, item in value.items() if name != "@context"}
        return {name: item for name, item in cleaned.items() if item not in (None, [], "")}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
