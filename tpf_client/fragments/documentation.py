"""The Hydra ApiDocumentation of a server, for pages without a form.

Source: Hydra Core Vocabulary, section 5.1.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from annotations.namespaces import HYDRA, RDF, RDFS, XSD
from tpf_client.errors import PageError
from tpf_client.fragments.destinations import without_query
from tpf_client.fragments.form import Form

_REL: Final = f"{HYDRA}apiDocumentation"
_ADDRESSES: Final = ("http://www.w3.org/ns/hydra", "https://www.w3.org/ns/hydra")
_MARK: Final = b"www.w3.org"
_LINK: Final = re.compile(r"<([^<>]*)>([^<]*)")
_RELATION: Final = re.compile(r""";\s*rel\s*=\s*["']?([^"';]*)""", re.IGNORECASE)
_LONGEST: Final = 10_000
_MOST_CONTEXTS: Final = 1_000
"""What is put in is longer than an address: a document with more of them is left as it is."""
_LARGEST: Final = 2**23
"""Bytes of a document to put them in: Python's objects take up to fifty times as many."""
_TYPED: Final = (
    "apiDocumentation", "collection", "entrypoint", "expects", "first", "last", "mapping",
    "member", "next", "operation", "previous", "property", "returns", "search",
    "supportedClass", "supportedOperation", "supportedProperty", "variableRepresentation", "view",
)  # fmt: skip
_CONTEXT: Final = {
    "hydra": HYDRA,
    "rdf": RDF,
    "rdfs": RDFS,
    "xsd": XSD,
    "@vocab": HYDRA,
    **{name: {"@id": HYDRA + name, "@type": "@id"} for name in _TYPED},
}
"""What the contexts of Hydra that lie on the web say of forms."""


def documented_at(headers: Mapping[str, str]) -> str | None:
    """Return the linked URL of the documentation, unresolved."""
    field = headers.get("Link", "")
    if _REL not in field or len(field) > _LONGEST:
        return None
    for url, parameters in _LINK.findall(field):
        rel = _RELATION.search(parameters)
        if rel is not None and _REL in rel[1].split():
            return str(url)
    return None


def with_hydra_context(body: bytes) -> bytes:
    """Inline the contexts of Hydra into JSON-LD; no other context is fetched."""
    if len(body) > _LARGEST or not 0 < body.count(_MARK) <= _MOST_CONTEXTS:
        return body
    try:
        return json.dumps(_put_in(json.loads(body))).encode()
    except (ValueError, RecursionError):
        return body  # whoever parses it says what is wrong


def _put_in(value: Any) -> Any:
    if isinstance(value, list):
        return [_put_in(each) for each in value]
    if isinstance(value, dict):
        return {
            name: _context(each) if name == "@context" else _put_in(each)
            for name, each in value.items()
        }
    return value


def _context(context: Any) -> Any:
    if isinstance(context, list):
        return [_context(each) for each in context]
    return _CONTEXT if isinstance(context, str) and context.startswith(_ADDRESSES) else context


def form_for(url: str, forms: Sequence[Form], documentation: str) -> Form:
    """Return the documentation's form of a dataset."""
    asked = without_query(url)
    for form in forms:
        if without_query(form.template.partition("{")[0]) == asked:
            return form
    if len(forms) == 1:
        return forms[0]
    urls = dict.fromkeys(form.template.partition("{")[0] for form in forms)
    # Not the views of one dataset.
    whole = [each for each in urls if each.rpartition("/")[0] not in urls]
    others = ", ".join(whole[:10]) or "none"
    raise PageError(
        url, f"the page has no form, and those of {documentation} are of others: {others}"
    )
