"""Where what this server names is described: its IRIs of blank nodes and of annotations.

Such an IRI is no page of its own. Whoever opens it is sent to the fragment of what is said about it
(``303``, *Cool URIs for the Semantic Web*, section 4.2).
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from tpf_server.fragments.endpoint import Endpoint

_KINDS: Final = {
    "property": "singleton-property",
    "graph": "named-graph",
    "statement": "reification",
    "reifier": "rdf-1.2",
}
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")


def described_blank_node(
    endpoints: Mapping[str, Endpoint], base: str, name: str, label: str
) -> str | None:
    """The URL of the fragment that describes a blank node; ``None``: nothing does.

    Args:
        endpoints: what is served, by path.
        base: URL of this server.
        name: of the dataset.
        label: percent-decoded; it may have parts.
    """
    front, slash, last = label.rpartition("/")
    # The last part is the label as `Skolemizer` writes it.
    iri = f"{base}.well-known/genid/{name}/{front}{slash}{quote(last, safe='')}"
    return _fragment(endpoints.get(name), iri)


def described_annotation(
    endpoints: Mapping[str, Endpoint], base: str, name: str, kind: str, digest: str
) -> str | None:
    """The URL of the fragment that describes what an annotation names; ``None``: nothing does.

    Args:
        endpoints: what is served, by path.
        base: URL of this server.
        name: of the dataset.
        kind: of the node, as names of annotations say it.
        digest: of the fact.
    """
    if _DIGEST.fullmatch(digest) is None or not (kind.isascii() and kind.islower()):
        return None
    endpoint = endpoints.get(f"{name}/{_KINDS.get(kind)}") or endpoints.get(name)
    return _fragment(endpoint, f"{base}{name}/facts/{kind}/{digest}")


def _fragment(endpoint: Endpoint | None, iri: str) -> str | None:
    return None if endpoint is None else f"{endpoint.url}?subject={quote(iri, safe='')}"
