"""What of a page is data, and what is metadata."""

from collections.abc import Iterable

from annotations.namespaces import DEFAULT_VOCABULARY, FOAF, HYDRA, VOID
from annotations.terms import Quad, Term

PRIMARY_TOPIC = f"<{FOAF}primaryTopic>"
SEARCH = f"<{HYDRA}search>"
MAPPING = f"<{HYDRA}mapping>"
VIEW = f"<{HYDRA}view>"
COUNTS = (f"<{VOID}triples>", f"<{HYDRA}totalItems>")
PAGE_SIZE = (f"<{HYDRA}itemsPerPage>", f"<{HYDRA}limit>")
NEXT = (f"<{HYDRA}next>", f"<{HYDRA}nextPage>")
SUBSET = f"<{VOID}subset>"
_METADATA_SUBJECT_MARKS = frozenset(
    {
        SEARCH, MAPPING, *COUNTS, *NEXT, *PAGE_SIZE, f"<{HYDRA}template>",
        f"<{HYDRA}first>", f"<{HYDRA}firstPage>", f"<{HYDRA}previous>", f"<{HYDRA}previousPage>",
        f"<{HYDRA}last>", f"<{HYDRA}lastPage>", f"<{HYDRA}variable>", f"<{HYDRA}property>",
    }
)  # fmt: skip


def metadata_graphs(quads: Iterable[Quad]) -> set[Term]:
    """The graphs of a page that hold its metadata: those that have a primary topic."""
    candidates: set[Term] = set()
    marked: set[Term] = set()
    for subject, predicate, _, graph in quads:
        if predicate in _METADATA_SUBJECT_MARKS:
            marked.add(graph)
        elif predicate == PRIMARY_TOPIC and graph == subject:
            candidates.add(graph)
    return candidates & marked or candidates


def split_metadata(quads: list[Quad], url: str) -> tuple[list[Quad], list[Quad]]:
    """The data quads and the metadata quads of a page.

    In a quad format the metadata are the graph that has a primary topic; in a triple format they
    are what is said about page, fragment, dataset and form.
    """
    graphs = metadata_graphs(quads)
    if graphs:
        return (
            [quad for quad in quads if quad.graph not in graphs],
            [quad for quad in quads if quad.graph in graphs],
        )
    nodes = {q.subject for q in quads if q.predicate in _METADATA_SUBJECT_MARKS}
    nodes |= {q.subject for q in quads if q.predicate == DEFAULT_VOCABULARY["predicate"]}
    nodes |= {q.object for q in quads if q.subject in nodes and q.predicate in (SEARCH, MAPPING)}
    nodes |= {q.subject for q in quads if q.object in nodes and q.predicate in (SUBSET, VIEW)}
    nodes.add(Term(f"<{url}>"))
    data: list[Quad] = []
    metadata: list[Quad] = []
    for quad in quads:
        about = quad.subject in nodes or (quad.predicate == PRIMARY_TOPIC and quad.object in nodes)
        (metadata if about else data).append(quad)
    return data, metadata
