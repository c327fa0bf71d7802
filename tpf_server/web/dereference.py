"""Where what this server names is described: its IRIs of blank nodes and of annotations.

Such an IRI is no page of its own. Whoever opens it is sent to the fragment of what is said about it
(``303``, *Cool URIs for the Semantic Web*, section 4.2).
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from tpf_server.fragments.endpoint import Endpoint

_GENID: Final = re.compile(r"\.well-known/genid/([^/]+)/.+", re.DOTALL)
_MINTED: Final = re.compile(r"([^/]+)/facts/([a-z]+)/[0-9a-f]{32}")
_VIEWS: Final = {
    "property": "singleton-property",
    "graph": "named-graph",
    "statement": "reification",
    "reifier": "rdf-1.2",
}


def description(endpoints: Mapping[str, Endpoint], base: str, path: str) -> str | None:
    """The URL of the fragment that describes what is named by a path; ``None``: nothing is.

    Args:
        endpoints: what is served, by path.
        base: URL of this server.
        path: percent-decoded, without the slash at its front.
    """
    view = None
    if (found := _GENID.fullmatch(path)) is not None:
        prefix = path.rpartition("/")[0] + "/"
        # The last part is the label as `Skolemizer` writes it.
        iri = base + prefix + quote(path[len(prefix) :], safe="")
    elif (found := _MINTED.fullmatch(path)) is not None:
        iri = base + path
        view = _VIEWS.get(found[2])
    else:
        return None
    endpoint = endpoints.get(f"{found[1]}/{view}") or endpoints.get(found[1])
    return None if endpoint is None else f"{endpoint.url}?subject={quote(iri, safe='')}"
