"""What the metadata of a page say: its forms, its counts, its links, its instants.

Source: Triple Pattern Fragments (Hydra W3C Community Group), section 4; Quad Pattern Fragments;
this project's temporal metadata (see docs/client.md).
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import chain, islice
from typing import TypeAlias

from annotations.errors import AnnotationError
from annotations.instants import instant_of_term
from annotations.namespaces import HYDRA, RDF, SD, VOID, Vocabulary
from annotations.terms import Quad, Term, is_iri, is_literal, literal_parts
from tpf_client.errors import PageError
from tpf_client.fragments.form import Form
from tpf_client.fragments.freshness import whole_number
from tpf_client.fragments.known_lines import SaidLine
from tpf_client.fragments.page import PageMetadata, Statements
from tpf_client.fragments.parts import (
    COUNTS,
    MAPPING,
    NEXT,
    PAGE_SIZE,
    PRIMARY_TOPIC,
    SEARCH,
)

_VOCABULARY = f"<{VOID}vocabulary>"
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
_MOST_OBJECTS = 16
"""Among so many objects of one subject and predicate, that which is another one is looked for."""


def statements_of(quads: Iterable[Quad]) -> Statements:
    """What these quads say, by subject."""
    statements: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for subject, predicate, object_, _ in quads:
        statements[subject][predicate].append(object_)
    return statements


def changed_statements(
    statements: Statements,
    changes: Iterable[tuple[SaidLine, SaidLine]],
    predicates: Container[str],
) -> tuple[Statements, set[Term]] | None:
    """The statements of a page of which some lines say other objects.

    It takes time that is linear in what the lines say, however many objects are others.

    Args:
        statements: those before.
        changes: what these lines said, and what they say of the same subjects now.
        predicates: those whose objects may be others.

    Returns:
        They, and the predicates whose objects are others; ``None``: others are as well, or it
        cannot be told soon which of several objects is another one.
    """
    now = dict(statements)
    nodes: dict[str, dict[str, list[str]]] = {}
    found: set[Term] = set()
    for before, after in changes:
        for (subject, predicate, old, _), quad in zip(before.quads, after.quads, strict=True):
            if old == quad.object:
                continue
            if predicate not in predicates:
                return None
            if subject not in nodes:
                now[subject] = nodes[subject] = {**statements[subject]}
            node = nodes[subject]
            objects = node[predicate]
            if len(objects) > _MOST_OBJECTS or objects.count(old) != 1:
                return None
            node[predicate] = [quad.object if each == old else each for each in objects]
            found.add(predicate)
    return now, found


def spoken_vocabulary(statements: Statements, vocabulary: Vocabulary) -> Vocabulary:
    """The vocabulary of the page: one that it names, if its form speaks it; else the given one."""
    spoken = {predicate for node in statements.values() for predicate in node}
    for node in statements.values():
        for said in node.get(_VOCABULARY, ()):
            own = Vocabulary(said[1:-1])
            if own["mapping"] in spoken:
                return own
    return vocabulary


@lru_cache(16)
def passing(tmp: Vocabulary) -> frozenset[str]:
    """The predicates that say what is so for the moment, and nothing that `metadata_again` keeps.

    That are the instants, the labels of facts, and the links that name the snapshot of the page.
    """
    instants = (tmp[each] for each in ("earliestExpiration", "nextChange", "evaluatedAt"))
    links = (f"<{HYDRA}first>", f"<{HYDRA}last>")
    return frozenset({*tmp.label_predicates, *owning(tmp), *links, *instants})


@lru_cache(16)
def owning(tmp: Vocabulary) -> frozenset[str]:
    """The predicates that say which facts have a label."""
    return frozenset(tmp[each] for each in ("subject", "predicate", "object", "graph"))


def metadata_again(
    before: PageMetadata, statements: Statements, tmp: Vocabulary, url: str, warnings: list[str]
) -> PageMetadata:
    """What the statements mean, where only objects of `passing` predicates are others.

    Args:
        before: what they meant before.
        statements: those now.
        tmp: the vocabulary of the page.
        url: where it was read.
        warnings: takes in what is wrong.
    """
    preferred = _preferred(statements, url)

    def instant(name: str) -> datetime | None:
        return _instant(_find(statements, (tmp[name],), preferred), warnings)

    return replace(
        before,
        earliest_expiration=instant("earliestExpiration"),
        next_change=instant("nextChange"),
        evaluated_at=instant("evaluatedAt"),
    )


def _preferred(statements: Statements, url: str) -> Sequence[str]:
    """Of whom what is said of the page should be said."""
    return [*(o for by in statements.values() for o in by.get(PRIMARY_TOPIC, ())), f"<{url}>"]


def metadata_of(
    statements: Statements, tmp: Vocabulary, url: str, warnings: list[str]
) -> PageMetadata:
    """What the statements mean.

    Args:
        statements: all that a page says of itself.
        tmp: its vocabulary.
        url: where it was read.
        warnings: takes in what is wrong.

    Raises:
        PageError: a form is none.
    """
    preferred = _preferred(statements, url)
    default_graph = _iri(_find(statements, (f"<{SD}defaultGraph>",), preferred))
    method = _find(statements, (tmp["annotationMethod"],), preferred)
    lasting = PageMetadata(
        forms=_forms(statements, default_graph, tmp, url),
        count=_number(_find(statements, COUNTS, preferred)),
        page_size=_number(_find(statements, PAGE_SIZE, preferred)),
        next_page=_iri(_find(statements, NEXT, preferred)),
        dynamic=_number(_find(statements, (tmp["dynamicTriples"],), preferred)),
        method=literal_parts(method).lexical if method and is_literal(method) else None,
        labellings=frozenset(
            literal_parts(o).lexical
            for by in statements.values()
            for o in by.get(tmp["labelling"], ())
            if is_literal(o)
        ),
        plain_view=_iri(_find(statements, (tmp["plainView"],), preferred)),
        changes=_iri(_find(statements, (tmp["changes"],), preferred)),
    )
    return metadata_again(lasting, statements, tmp, url, warnings)


def _find(
    statements: Statements, predicates: Iterable[str], preferred: Iterable[str]
) -> str | None:
    """The object of the first of these predicates, said of a preferred subject or of anyone."""
    for predicate in predicates:
        for subject in preferred:
            found = statements.get(subject, {}).get(predicate)
            if found:
                return found[0]
        for by_predicate in statements.values():
            found = by_predicate.get(predicate)
            if found:
                return found[0]
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
    """What a mapping says that a variable of a template stands for."""
    variables = [v for v in entry.get(f"<{HYDRA}variable>", ())[:_MOST] if is_literal(v)]
    found: _Roles = {}
    for property_ in entry.get(f"<{HYDRA}property>", ())[:_MOST]:
        if is_literal(property_):  # as hydra-python-core writes it
            property_ = f"<{literal_parts(property_).lexical}>"
        role = "at" if property_ == tmp["at"] else _ROLES.get(property_)
        if role and variables:
            maximum = next(iter(entry.get(tmp["maximum"], ())), None)
            found[role] = literal_parts(variables[0]).lexical, _number(maximum)
    return found


def _forms(
    statements: Statements, default_graph: str | None, tmp: Vocabulary, url: str
) -> tuple[Form, ...]:
    found: list[Form] = []
    read: dict[str, _Roles] = {}
    forms = {form: None for by in statements.values() for form in by.get(SEARCH, ())}
    for form in islice(forms, _MOST):
        node = statements.get(form, {})
        templates = [t for t in node.get(f"<{HYDRA}template>", ()) if is_literal(t)]
        roles: dict[str, str] = {}
        maxima: dict[str, int | None] = {}
        mappings = chain(node.get(MAPPING, ()), node.get(tmp["mapping"], ()))
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
            found.append(made)
    return tuple(found)
