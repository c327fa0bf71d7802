"""The resources of the server, of which Flask's rules and the API documentation are made."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from annotations.namespaces import HYDRA, LDES, RDF


class Operation(NamedTuple):
    """A method of a resource, with the classes of its answer and body."""

    title: str
    returns: str | None = None
    expects: str | None = None
    statuses: tuple[int, ...] = ()


class Resource(NamedTuple):
    """A resource, or all of a kind."""

    rule: str
    about: str
    operations: Mapping[str, Operation]

    @property
    def methods(self) -> tuple[str, ...]:
        return (*self.operations, *(["HEAD"] if "GET" in self.operations else []), "OPTIONS")

    @property
    def template(self) -> str:
        """Its address as in RFC 6570, without the first slash."""
        reserved = self.rule.replace("<path:", "{+")
        return reserved.replace("<", "{").replace(">", "}").removeprefix("/")


_PAGE: Final = Operation("Read a page", "fragment", None, (304, 400, 404, 406, 410, 503))

_TIMEMAP: Final = Operation("List its mementos", None, None, (400, 404, 410, 503))

RESOURCES: Final = {
    "index": Resource(
        "/",
        "The datasets that are served.",
        {"GET": Operation("List the datasets", HYDRA + "Collection", None, (406,))},
    ),
    "void": Resource(
        "/.well-known/void",
        "Where the datasets are described, as VoID wants it found (section 7.2).",
        {"GET": Operation("Find the datasets", "index", None, (303,))},
    ),
    "robots": Resource(
        "/robots.txt",
        "What search engines may read (RFC 9309): fronts, not fragments.",
        {"GET": Operation("Read what robots may read")},
    ),
    "documentation": Resource(
        "/api-doc",
        "The documentation of the interface.",
        {"GET": Operation("Read the documentation", HYDRA + "ApiDocumentation")},
    ),
    "healthz": Resource(
        "/healthz",
        "Whether the process answers.",
        {"GET": Operation("Ask whether the process answers")},
    ),
    "readyz": Resource(
        "/readyz",
        "Whether its stores answer, too, and take facts.",
        {"GET": Operation("Ask whether the server is ready", None, None, (503,))},
    ),
    "metrics": Resource(
        "/metrics",
        "Counts of requests, for Prometheus.",
        {"GET": Operation("Read the counts", None, None, (401, 403))},
    ),
    "fragment": Resource(
        "/<name>",
        "A page of the quads of a dataset that match a pattern, with counts, links and labels.",
        {"GET": _PAGE},
    ),
    "view": Resource(
        "/<name>/<view>",
        "The same, with labelled facts as a method annotates them.",
        {"GET": _PAGE},
    ),
    "changes": Resource(
        "/<name>/changes",
        "The predicates of what changes in a dataset, as server-sent events.",
        {"GET": Operation("Follow what changes", None, None, (400, 404, 406, 503))},
    ),
    "ldes": Resource(
        "/<name>/ldes",
        "All that was published to a dataset and withdrawn, as a Linked Data Event Stream.",
        {"GET": Operation(
            "Read a node", LDES + "EventStream", None, (304, 400, 404, 406, 410, 503)
        )},
    ),
    "timemap": Resource(
        "/<name>/timemap",
        "At which instants a fragment changed.",
        {"GET": _TIMEMAP},
    ),
    "view_timemap": Resource(
        "/<name>/<view>/timemap",
        "The same of a fragment of a view.",
        {"GET": _TIMEMAP},
    ),
    "facts": Resource(
        "/<name>/facts",
        "Where labelled facts of a dataset are published and withdrawn.",
        {
            method: Operation(
                title, None, RDF + "Statement",
                (201, 400, 401, 403, 404, 411, 413, 415, 422, 503),
            )
            for method, title in (
                ("POST", "Publish labelled facts"), ("DELETE", "Withdraw facts"),
            )
        },
    ),
    "annotation": Resource(
        "/<name>/facts/<kind>/<digest>",
        "What an annotation names.",
        {"GET": Operation("Find what is said about it", "view", None, (303, 404))},
    ),
    "blank_node": Resource(
        "/.well-known/genid/<name>/<path:label>",
        "A blank node of a dataset.",
        {"GET": Operation("Find what is said about it", "fragment", None, (303, 404))},
    ),
}  # fmt: skip
"""By the names of their rules."""
