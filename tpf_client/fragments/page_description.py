"""The metadata of a page: select its quads, and interpret them.

With graphs, those whose topic the page or its fragment is; without, statements about page,
fragment, dataset, form and labels. Source: Triple (and Quad) Pattern Fragments, section 4.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from operator import itemgetter
from typing import TypeAlias
from urllib.parse import parse_qsl

from annotations.errors import AnnotationError
from annotations.instants import instant_of_term
from annotations.labels import Expiration, Interval, Label, at_instant
from annotations.namespaces import (
    DCTERMS,
    DEFAULT_VOCABULARY,
    FOAF,
    HYDRA,
    RDF,
    RDF_TYPE,
    SD,
    VOID,
    Vocabulary,
)
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    Term,
    is_blank_node,
    is_iri,
    is_literal,
    literal_parts,
)
from tpf_client.errors import PageError
from tpf_client.fragments.destinations import without_query
from tpf_client.fragments.form import Form
from tpf_client.fragments.freshness import whole_number
from tpf_client.fragments.page import PageMetadata

Statements: TypeAlias = Mapping[str, Mapping[str, list[str]]]
"""Subject to predicate to objects."""
_BySubject: TypeAlias = dict[str, dict[str, list[str]]]
_Parts: TypeAlias = Mapping[str, Sequence[str]]
_PRIMARY_TOPIC = f"<{FOAF}primaryTopic>"
_SEARCH = f"<{HYDRA}search>"
_MAPPING = f"<{HYDRA}mapping>"
_VIEW = f"<{HYDRA}view>"
_MEMBER = f"<{HYDRA}member>"
_COUNTS = (f"<{VOID}triples>", f"<{HYDRA}totalItems>")
_PAGE_SIZE = (f"<{HYDRA}itemsPerPage>", f"<{HYDRA}limit>")
_NEXT = (f"<{HYDRA}next>", f"<{HYDRA}nextPage>")
_SUBSET = f"<{VOID}subset>"
_TEMPLATE = f"<{HYDRA}template>"
_VARIABLE = f"<{HYDRA}variable>"
_PROPERTY = f"<{HYDRA}property>"
_VOCABULARY = f"<{VOID}vocabulary>"
_CONTROLS = frozenset(
    {
        *_COUNTS, *_NEXT, *_PAGE_SIZE,
        f"<{HYDRA}first>", f"<{HYDRA}firstPage>", f"<{HYDRA}previous>", f"<{HYDRA}previousPage>",
        f"<{HYDRA}last>", f"<{HYDRA}lastPage>",
    }
)  # fmt: skip
_TITLES = frozenset(f"<{DCTERMS}{name}>" for name in ("title", "description", "source"))
_DATASETS = frozenset({f"<{VOID}Dataset>", f"<{HYDRA}Collection>"})
_NAMESPACES = (f"<{HYDRA}", f"<{VOID}", f"<{SD}")
"""What interfaces are described with, beside the temporal vocabulary of a page."""
_MARKS = _CONTROLS | {_SEARCH, _MAPPING, _TEMPLATE, _VARIABLE, _PROPERTY}

_ROLES = {
    f"<{RDF}subject>": "subject",
    f"<{RDF}predicate>": "predicate",
    f"<{RDF}object>": "object",
    f"<{SD}graph>": "graph",
    f"<{HYDRA}pageIndex>": "page",
    f"<{HYDRA}limit>": "limit",
    "<http://vocab.org/brtpf#values>": "values",
}
_MOST = 100
"""Forms of a page, and what a form says of one thing, that are looked at."""
_Roles: TypeAlias = dict[str, tuple[str, int | None]]
"""The variable of each role, and the most that it may ask for."""


def metadata_graphs(quads: Iterable[Quad], url: str) -> set[Term]:
    """Return the metadata graphs of the page at `url`: those with it as topic.

    Where none is, the page calls itself something else: then those that have a topic.
    """
    address = without_query(url)
    page: Sequence[tuple[str, str]] | None = None
    named: set[Term] = set()
    own: set[Term] = set()
    exact: set[Term] = set()
    marked: set[Term] = set()
    searched: set[Term] = set()
    for subject, predicate, object_, graph in quads:
        if predicate in _MARKS:
            marked.add(graph)
            if predicate == _SEARCH:
                searched.add(graph)
        elif predicate == _PRIMARY_TOPIC and graph == subject:
            named.add(graph)
            topic = object_[1:-1]
            if address in (without_query(graph[1:-1]), without_query(topic)):
                own.add(graph)
                if topic != url and page is None:
                    page = _parameters(url)
                if topic == url or (address == without_query(topic) and _parameters(topic) == page):
                    exact.add(graph)
    if own or DEFAULT_GRAPH in searched:
        return exact & marked or own & marked or own
    return named & searched or named & marked or named


def split_metadata(quads: list[Quad], url: str) -> tuple[list[Quad], list[Quad]]:
    """Split the quads of the page at `url` into data and metadata."""
    graphs = metadata_graphs(quads, url)
    if graphs:
        return (
            [quad for quad in quads if quad.graph not in graphs],
            [quad for quad in quads if quad.graph in graphs],
        )
    is_metadata = _Description(quads, url).has
    data: list[Quad] = []
    metadata: list[Quad] = []
    for quad in quads:
        (metadata if is_metadata(quad) else data).append(quad)
    return data, metadata


class _Description:
    """The statements of a page without graphs about itself, its fragment, dataset and form."""

    def __init__(self, quads: Iterable[Quad], url: str) -> None:
        self._address = without_query(url)
        statements: _BySubject = {}
        containing: dict[str, list[str]] = {}
        for subject, predicate, object_, _ in quads:
            statements.setdefault(subject, {}).setdefault(predicate, []).append(object_)
            if predicate in (_SUBSET, _VIEW):
                containing.setdefault(object_, []).append(subject)
        self._pages = self._pages_of(statements, containing, url)
        addresses = {
            form: _template(statements, form)
            for each in self._pages
            for form in statements.get(each, {}).get(_SEARCH, ())
        }
        fitting = {form for form, address in addresses.items() if address == self._address}
        self._forms = fitting or {
            form for form, address in addresses.items() if address is not None
        }
        self._mappings = {
            each
            for form in self._forms
            for objects in statements[form].values()
            for each in objects
            if _VARIABLE in statements.get(each, ())
        }
        names = {
            name for each in self._pages for name in statements.get(each, {}).get(_VOCABULARY, ())
        }
        spaces = [DEFAULT_VOCABULARY, *(Vocabulary(name[1:-1]) for name in names)]
        self._words = {*_NAMESPACES, *(each["x"][:-2] for each in spaces)}
        stated = {predicate for each in self._pages for predicate in statements.get(each, ())}
        labelled: dict[str, Vocabulary] = {
            each["predicate"]: each for each in spaces if each["dynamicTriples"] in stated
        }
        self._labels = {
            each
            for each, node in statements.items()
            if is_blank_node(each)
            and any(_is_label(node, labelled[name]) for name in node if name in labelled)
        }

    def _pages_of(self, statements: Statements, containing: _Parts, url: str) -> set[str]:
        address, parameters = self._address, _parameters(url)
        # Servers may write the same URL in another way.
        pages = {f"<{url}>"} | {
            each
            for each, node in statements.items()
            if _is_page(each, node)
            and without_query(each[1:-1]) == address
            and _parameters(each[1:-1]) == parameters
        }
        pages |= _datasets(statements, containing, pages, address)
        waiting = list(pages)
        while waiting:
            each = waiting.pop()
            node = statements.get(each, {})
            parts = [part for name in (_SUBSET, _VIEW) for part in node.get(name, ())]
            new = {part for part in parts if _is_page(part, statements.get(part, {}))}
            around = without_query(each[1:-1])
            for whole in containing.get(each, ()):
                own = "#" not in whole or _is_dataset(statements[whole])
                if own and without_query(whole[1:-1]) == around:
                    new.add(whole)
            new -= pages
            pages |= new
            waiting += new
        return pages

    def has(self, quad: Quad) -> bool:
        subject, predicate, object_, _ = quad
        if subject in self._pages:
            if predicate in (_SUBSET, _VIEW):
                return object_ in self._pages
            return predicate in _TITLES or self._is_word(predicate, object_)
        if subject in self._forms or subject in self._mappings or subject in self._labels:
            return self._is_word(predicate, object_)
        if object_ not in self._pages:
            return False
        address = without_query(subject[1:-1])
        if predicate == _MEMBER:
            return self._address.startswith(address)
        return predicate in (_SUBSET, _VIEW, _PRIMARY_TOPIC) and address == self._address

    def _is_word(self, predicate: str, object_: str) -> bool:
        return _namespace(object_ if predicate == RDF_TYPE else predicate) in self._words


def _is_page(name: str, node: Mapping[str, Sequence[str]]) -> bool:
    """True for what may be a page or a fragment: it has counts or links, and a URL of its own."""
    return is_iri(name) and "#" not in name and not _CONTROLS.isdisjoint(node)


def _is_dataset(node: Mapping[str, Sequence[str]]) -> bool:
    return _SEARCH in node or not _DATASETS.isdisjoint(node.get(RDF_TYPE, ()))


def _is_label(node: Mapping[str, Sequence[str]], tmp: Vocabulary) -> bool:
    ends = tmp.expiration in node or tmp.instant in node
    return tmp["subject"] in node and (ends or (tmp.initial in node and tmp.final in node))


def _parameters(url: str) -> Sequence[tuple[str, str]]:
    return sorted(parse_qsl(url.partition("#")[0].partition("?")[2]))


def _namespace(iri: str) -> str:
    end = max(iri.rfind("#"), iri.rfind("/"))
    return iri[: (end if end >= 0 else iri.rfind(":")) + 1]


def _datasets(
    statements: Statements, containing: _Parts, pages: set[str], address: str
) -> set[str]:
    """A form that leads here, one of a container, or any."""
    targets = {
        form: _template(statements, form)
        for node in statements.values()
        for form in node.get(_SEARCH, ())
    }
    forms = {
        each: {targets[form] for form in node[_SEARCH]}
        for each, node in statements.items()
        if _SEARCH in node
    }
    around = {each for page in pages for each in containing.get(page, ())}
    fitting = {each for each, targets_of in forms.items() if address in targets_of}
    return fitting or forms.keys() & around or {each for each in forms if any(forms[each])}


def _template(statements: Statements, form: str) -> str | None:
    node = statements.get(form, {})
    template = next(filter(is_literal, node.get(_TEMPLATE, ())), None)
    if template is None or _MAPPING not in node:
        return None
    return without_query(literal_parts(template).lexical.partition("{")[0])


def statements_of(quads: Iterable[Quad]) -> Statements:
    """Index quads by subject and predicate."""
    statements: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for subject, predicate, object_, _ in quads:
        statements[subject][predicate].append(object_)
    return statements


def spoken_vocabulary(statements: Statements, vocabulary: Vocabulary) -> Vocabulary:
    """Return the vocabulary that the page names and its form uses, or the default."""
    spoken = {predicate for node in statements.values() for predicate in node}
    for node in statements.values():
        for namespace in node.get(_VOCABULARY, ()):
            own = Vocabulary(namespace[1:-1])
            if own["mapping"] in spoken:
                return own
    return vocabulary


def _preferred(statements: Statements, url: str) -> Sequence[str]:
    return [*(o for by in statements.values() for o in by.get(_PRIMARY_TOPIC, ())), f"<{url}>"]


def metadata_of(
    statements: Statements, tmp: Vocabulary, url: str, warnings: list[str]
) -> PageMetadata:
    """Read the counts, links, forms and instants of a page."""
    preferred = _preferred(statements, url)
    default_graph = _iri(_find(statements, (f"<{SD}defaultGraph>",), preferred))
    method = _find(statements, (tmp["annotationMethod"],), preferred)

    def instant(name: str) -> datetime | None:
        return _instant(_find(statements, (tmp[name],), preferred), warnings)

    return PageMetadata(
        forms=_forms(statements, default_graph, tmp, url),
        count=_number(_find(statements, _COUNTS, preferred)),
        page_size=_number(_find(statements, _PAGE_SIZE, preferred)),
        next_page=_iri(_find(statements, _NEXT, preferred)),
        dynamic=_number(_find(statements, (tmp["dynamicTriples"],), preferred)),
        method=literal_parts(method).lexical if method and is_literal(method) else None,
        plain_view=_iri(_find(statements, (tmp["plainView"],), preferred)),
        changes=_iri(_find(statements, (tmp["changes"],), preferred)),
        earliest_expiration=instant("earliestExpiration"),
        next_change=instant("nextChange"),
        evaluated_at=instant("evaluatedAt"),
    )


def _find(
    statements: Statements, predicates: Iterable[str], preferred: Iterable[str]
) -> str | None:
    for predicate in predicates:
        for subject in preferred:
            objects = statements.get(subject, {}).get(predicate)
            if objects:
                return objects[0]
        for by_predicate in statements.values():
            objects = by_predicate.get(predicate)
            if objects:
                return objects[0]
    return None


def _number(term: str | None) -> int | None:
    if term is None or not is_literal(term):
        return None
    return whole_number(literal_parts(term).lexical.strip())


def _iri(term: str | None) -> str | None:
    return term[1:-1] if term is not None and is_iri(term) else None


def _instant(term: str | None, warnings: list[str]) -> datetime | None:
    if term is None:
        return None
    try:
        return instant_of_term(term)
    except AnnotationError as error:
        warnings.append(str(error))
        return None


def _roles(entry: Mapping[str, Sequence[str]], tmp: Vocabulary) -> _Roles:
    variables = [v for v in entry.get(_VARIABLE, ())[:_MOST] if is_literal(v)]
    roles: _Roles = {}
    for property_ in entry.get(_PROPERTY, ())[:_MOST]:
        if is_literal(property_):  # as hydra-python-core writes it
            property_ = f"<{literal_parts(property_).lexical}>"
        role = "at" if property_ == tmp["at"] else _ROLES.get(property_)
        if role and variables:
            maximum = next(iter(entry.get(tmp["maximum"], ())), None)
            roles[role] = literal_parts(variables[0]).lexical, _number(maximum)
    return roles


def _forms(
    statements: Statements, default_graph: str | None, tmp: Vocabulary, url: str
) -> tuple[Form, ...]:
    result: list[Form] = []
    read: dict[str, _Roles] = {}
    forms = {form: None for by in statements.values() for form in by.get(_SEARCH, ())}
    for form in islice(forms, _MOST):
        node = statements.get(form, {})
        templates = [t for t in node.get(_TEMPLATE, ()) if is_literal(t)]
        roles: dict[str, str] = {}
        maxima: dict[str, int | None] = {}
        mappings = chain(node.get(_MAPPING, ()), node.get(tmp["mapping"], ()))
        for mapping in islice(mappings, _MOST):
            if mapping not in read:
                # Forms may have mappings in common.
                read[mapping] = _roles(statements.get(mapping, {}), tmp)
            for role, (variable, maximum) in read[mapping].items():
                roles[role], maxima[role] = variable, maximum
        if templates and {"subject", "predicate", "object"} <= roles.keys():
            template = literal_parts(templates[0]).lexical
            try:
                made = Form(
                    template=template,
                    default_graph=default_graph,
                    max_limit=maxima.get("limit") or None,
                    max_values=maxima.get("values"),
                    **roles,
                )
            except ValueError as error:
                raise PageError(url, f"a form whose template is none: {error}") from None
            result.append(made)
    return tuple(result)


def fact_labels(
    quads: Sequence[Quad],
    statements: Statements,
    vocabulary: Vocabulary,
    warnings: list[str],
    *,
    graphs_kept: bool,
) -> Sequence[Label | None]:
    """Return the label of each quad, or ``None``.

    `graphs_kept`: equal facts in different graphs are different facts.
    """
    by_subject: dict[tuple[str, str], dict[str, Label]] = {}
    by_object: dict[tuple[str, str, str, str], Label] = {}
    nodes = [node for node in statements.values() if node.get(vocabulary["predicate"])]
    room = sum([len(objects) for node in statements.values() for objects in node.values()])
    for node in nodes:
        label = _label(node, vocabulary, warnings)
        if label is None:
            continue
        graph = next(iter(node.get(vocabulary["graph"], ())), "") if graphs_kept else ""
        predicates = node.get(vocabulary["predicate"], ())
        objects = node.get(vocabulary["object"], ())
        subjects = node.get(vocabulary["subject"], ())
        # Servers repeat one of the three at most; what they say is as long as what it means.
        room -= len(predicates) * len(subjects) * max(len(objects), 1)
        if room < 0:
            warnings.append("labels of more facts than there are")
            break
        for predicate in predicates:
            for subject in subjects:
                for each in objects:
                    by_object[subject, predicate, each, graph] = label
            if not objects:
                of_predicate = by_subject.setdefault((predicate, graph), {})
                of_predicate.update(dict.fromkeys(subjects, label))
    if not by_subject and not by_object:
        return [None] * len(quads)
    kinds = set(map(itemgetter(1, 3), quads))
    if len(kinds) == 1 and not by_object:
        # Most pages are of one predicate.
        ((predicate, graph),) = kinds
        of_predicate = by_subject.get((predicate, graph if graphs_kept else DEFAULT_GRAPH), {})
        return list(map(of_predicate.get, map(itemgetter(0), quads)))
    labels: list[Label | None] = []
    for subject, predicate, object_, graph in quads:
        kind = predicate, graph if graphs_kept else DEFAULT_GRAPH
        label = by_object.get((subject, predicate, object_, kind[1]))
        labels.append(label or by_subject.get(kind, {}).get(subject))
    return labels


def _label(
    node: Mapping[str, list[str]], vocabulary: Vocabulary, warnings: list[str]
) -> Label | None:
    try:
        finals, initials = node.get(vocabulary.final, ()), node.get(vocabulary.initial, ())
        if initials and finals:
            return Interval(instant_of_term(initials[0]), instant_of_term(finals[0]))
        instants = node.get(vocabulary.instant, ())
        if instants:
            return at_instant(instant_of_term(instants[0]))
        ends = node.get(vocabulary.expiration, ())
        if ends:
            return Expiration(instant_of_term(ends[0]))
        warnings.append("a label without an instant")
    except AnnotationError as error:
        warnings.append(f"a label that cannot hold: {error}")
    return None
