"""What of a page is data, and what is metadata.

Any data may speak of forms, counts and topics. Metadata is only what is about this page: in a
format with graphs, a graph whose topic is the page or its fragment; in a format without graphs,
what is said of the page, its fragment, its dataset, the form of that dataset, and of the labels
that the page states.
"""

from collections.abc import Iterable

from annotations.namespaces import DEFAULT_VOCABULARY, FOAF, HYDRA, VOID, Vocabulary
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    Term,
    is_blank_node,
    is_iri,
    is_literal,
    literal_parts,
)

PRIMARY_TOPIC = f"<{FOAF}primaryTopic>"
SEARCH = f"<{HYDRA}search>"
MAPPING = f"<{HYDRA}mapping>"
VIEW = f"<{HYDRA}view>"
COUNTS = (f"<{VOID}triples>", f"<{HYDRA}totalItems>")
PAGE_SIZE = (f"<{HYDRA}itemsPerPage>", f"<{HYDRA}limit>")
NEXT = (f"<{HYDRA}next>", f"<{HYDRA}nextPage>")
SUBSET = f"<{VOID}subset>"
_TEMPLATE = f"<{HYDRA}template>"
_VARIABLE = f"<{HYDRA}variable>"
_VOCABULARY = f"<{VOID}vocabulary>"
_CONTROLS = frozenset(
    {
        *COUNTS, *NEXT, *PAGE_SIZE,
        f"<{HYDRA}first>", f"<{HYDRA}firstPage>", f"<{HYDRA}previous>", f"<{HYDRA}previousPage>",
        f"<{HYDRA}last>", f"<{HYDRA}lastPage>",
    }
)  # fmt: skip
_MARKS = _CONTROLS | {SEARCH, MAPPING, _TEMPLATE, _VARIABLE, f"<{HYDRA}property>"}

_BySubject = dict[str, dict[str, list[str]]]


def metadata_graphs(quads: Iterable[Quad], url: str) -> set[Term]:
    """The graphs of a page that hold its metadata: those whose topic is the page.

    Where none is, the page calls itself something else: then those that have a topic.

    Args:
        quads: those of the page.
        url: where it was read.
    """
    place = without_query(url)
    named: set[Term] = set()
    own: set[Term] = set()
    marked: set[Term] = set()
    searched: set[Term] = set()
    for subject, predicate, object_, graph in quads:
        if predicate in _MARKS:
            marked.add(graph)
            if predicate == SEARCH:
                searched.add(graph)
        elif predicate == PRIMARY_TOPIC and graph == subject:
            named.add(graph)
            if place in (without_query(graph[1:-1]), without_query(object_[1:-1])):
                own.add(graph)
    if own or DEFAULT_GRAPH in searched:
        return own & marked or own
    return named & searched or named & marked or named


def split_metadata(quads: list[Quad], url: str) -> tuple[list[Quad], list[Quad]]:
    """The data quads and the metadata quads of a page.

    Args:
        quads: those of the page.
        url: where it was read.
    """
    graphs = metadata_graphs(quads, url)
    if graphs:
        return (
            [quad for quad in quads if quad.graph not in graphs],
            [quad for quad in quads if quad.graph in graphs],
        )
    nodes = _described(quads, url)
    data: list[Quad] = []
    metadata: list[Quad] = []
    for quad in quads:
        about = quad.subject in nodes or (quad.predicate == PRIMARY_TOPIC and quad.object in nodes)
        (metadata if about else data).append(quad)
    return data, metadata


def _described(quads: Iterable[Quad], url: str) -> set[str]:
    """The page and what belongs to it: its fragment, its dataset, a form, labels.

    Args:
        quads: of a page without graphs.
        url: where it was read.
    """
    said: _BySubject = {}
    containing: dict[str, list[str]] = {}
    for subject, predicate, object_, _ in quads:
        said.setdefault(subject, {}).setdefault(predicate, []).append(object_)
        if predicate in (SUBSET, VIEW):
            containing.setdefault(object_, []).append(subject)
    place = without_query(url)
    nodes = {f"<{url}>"}
    # Servers may write the same URL in another way.
    nodes |= {
        each
        for each, node in said.items()
        if is_iri(each) and not _CONTROLS.isdisjoint(node) and without_query(each[1:-1]) == place
    }
    datasets = _datasets(said, containing, nodes, place)
    nodes |= datasets
    waiting = list(nodes)
    while waiting:
        each = waiting.pop()
        node = said.get(each, {})
        parts = [part for name in (SUBSET, VIEW) for part in node.get(name, ())]
        near = [
            *containing.get(each, ()),
            *(part for part in parts if not _CONTROLS.isdisjoint(said.get(part, ()))),
            *(o for said_of in node.values() for o in said_of if o.startswith(f"<{place}#")),
        ]
        new = set(near) - nodes
        nodes |= new
        waiting += new
    for form in {form for each in datasets for form in said[each][SEARCH]}:
        if _template(said, form) is not None:
            nodes.add(form)
            mappings = (each for objects in said[form].values() for each in objects)
            nodes.update(each for each in mappings if _VARIABLE in said.get(each, ()))
    return nodes | _labels(said, nodes)


def _labels(said: _BySubject, nodes: set[str]) -> set[str]:
    """What gives facts their labels, where the page states labels.

    Args:
        said: by subject and predicate.
        nodes: the page and what belongs to it.
    """
    stated = {predicate for each in nodes for predicate in said.get(each, ())}
    names = {name for each in nodes for name in said.get(each, {}).get(_VOCABULARY, ())}
    vocabularies = [DEFAULT_VOCABULARY, *(Vocabulary(name[1:-1]) for name in names)]
    marks = {tmp["predicate"] for tmp in vocabularies if tmp["dynamicTriples"] in stated}
    return {
        each for each, node in said.items() if is_blank_node(each) and not marks.isdisjoint(node)
    }


def _datasets(
    said: _BySubject, containing: dict[str, list[str]], pages: set[str], place: str
) -> set[str]:
    """What has the form of this page: one that leads here; else that of what contains it; else any.

    Args:
        said: by subject and predicate.
        containing: what has something as a part.
        pages: what the page is called.
        place: its URL, without the query.
    """
    places = {
        form: _template(said, form) for node in said.values() for form in node.get(SEARCH, ())
    }
    forms = {
        each: {places[form] for form in node[SEARCH]}
        for each, node in said.items()
        if SEARCH in node
    }
    around = {each for page in pages for each in containing.get(page, ())}
    fitting = {each for each, found in forms.items() if place in found}
    return fitting or forms.keys() & around or {each for each in forms if any(forms[each])}


def _template(said: _BySubject, form: str) -> str | None:
    """Where the template of a form leads, without the query; ``None``: it has none."""
    node = said.get(form, {})
    template = next(filter(is_literal, node.get(_TEMPLATE, ())), None)
    if template is None or MAPPING not in node:
        return None
    return without_query(literal_parts(template).lexical.partition("{")[0])


def without_query(url: str) -> str:
    """A URL without query and fragment."""
    return url.partition("#")[0].partition("?")[0].rstrip("/")
