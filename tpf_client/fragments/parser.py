"""From the bytes of a response to the quads and the metadata of a page.

Source: Triple Pattern Fragments (Hydra W3C Community Group), section 4; Quad Pattern Fragments;
this project's temporal metadata (see docs/client.md).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain, islice
from typing import NamedTuple

from annotations.errors import AnnotationError
from annotations.instants import instant_of_term
from annotations.labels import Expiration, Fact, Interval, Label, at_instant
from annotations.namespaces import DEFAULT_VOCABULARY, HYDRA, RDF, SD, VOID, Vocabulary
from annotations.terms import DEFAULT_GRAPH, is_iri, is_literal, literal_parts
from tpf_client.errors import PageError
from tpf_client.fragments.bodies import essence, parse_page_body
from tpf_client.fragments.form import Form
from tpf_client.fragments.freshness import whole_number
from tpf_client.fragments.lines import TYPES, KnownLines, SaidLine, read_lines
from tpf_client.fragments.page import PageMetadata
from tpf_client.fragments.parts import (
    COUNTS,
    MAPPING,
    NEXT,
    PAGE_SIZE,
    PRIMARY_TOPIC,
    SEARCH,
    split_metadata,
)

ACCEPTED_FORMATS = (
    "application/trig,application/n-quads;q=0.9,text/turtle;q=0.6,"
    "application/n-triples;q=0.5,application/ld+json;q=0.3"
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
_LONGEST_TEMPLATE = 10_000
_WARNINGS = 20
"""Of what is wrong with the labels of a page, so many are told."""
_SHOWN = 200
"""Characters of a warning."""

Statements = Mapping[str, Mapping[str, list[str]]]
"""Subject to predicate to objects."""


class ReadPage(NamedTuple):
    """What a page says.

    Args:
        facts: its data, with their labels.
        metadata: what it says of itself.
        warnings: what is wrong with labels.
        lines: what its lines say, for the next time that it is read; ``None``: they are not whole.
    """

    facts: tuple[Fact, ...]
    metadata: PageMetadata
    warnings: tuple[str, ...]
    lines: KnownLines | None


class PageReader:
    """Reads pages: bytes to facts and metadata.

    Args:
        vocabulary: the namespace of the temporal metadata, where a page names no other.
        most: bytes of memory that the data of a page may take.
    """

    def __init__(self, vocabulary: Vocabulary = DEFAULT_VOCABULARY, most: float = math.inf) -> None:
        self._vocabulary = vocabulary
        self._most = most

    def read(
        self,
        body: bytes,
        media_type: str,
        url: str,
        *,
        bare: bool = False,
        before: KnownLines | None = None,
    ) -> ReadPage:
        """What a page says.

        Args:
            body: the page.
            media_type: of the page.
            url: where it was read.
            bare: whether all of it is data.
            before: what the lines of this page said when it was read last; ``None``: they are not
                looked at one by one.

        Raises:
            ParseError: the body is not RDF of the announced type.
            PageError: the body is RDF, but says nothing about a fragment.
            PageTooLargeError: it takes more memory than is allowed.
        """
        lines = parts = None
        if before is not None and not bare and essence(media_type) in TYPES:
            lines = read_lines(body, url, before, self._most)
        if lines is not None:
            parts = lines.split()
        if parts is not None:
            data, about = parts
        else:
            quads = lines.quads() if lines else parse_page_body(body, media_type, url, self._most)
            given, about = (quads, []) if bare else split_metadata(quads, url)
            data = [SaidLine(given, 0)]
        if not about and not bare:
            raise PageError(url, "the page says nothing about a fragment: no metadata, no form")
        statements: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for subject, predicate, object_, _ in about:
            statements[subject][predicate].append(object_)
        warnings: list[str] = []
        vocabulary = self._spoken(statements)
        labels = _Labels(statements, vocabulary, any(quad.graph for quad in about), warnings)
        facts = tuple(labels.facts(data, url))
        about_page = self._metadata(statements, vocabulary, url, warnings)
        shown = dict.fromkeys(each[:_SHOWN] for each in warnings[:_WARNINGS])
        known = lines.known if lines is not None else None if before is not None else {}
        return ReadPage(facts, about_page, tuple(shown), known)

    def _spoken(self, statements: Statements) -> Vocabulary:
        """The vocabulary of the page: one that it names, if its form speaks it."""
        for node in statements.values():
            for said in node.get(_VOCABULARY, ()):
                own = Vocabulary(said[1:-1])
                if any(own["mapping"] in each for each in statements.values()):
                    return own
        return self._vocabulary

    def _metadata(
        self, statements: Statements, tmp: Vocabulary, url: str, warnings: list[str]
    ) -> PageMetadata:
        topics = [o for by in statements.values() for o in by.get(PRIMARY_TOPIC, ())]
        preferred = [*topics, f"<{url}>"]
        default_graph = _iri(_find(statements, (f"<{SD}defaultGraph>",), preferred))
        method = _find(statements, (tmp["annotationMethod"],), preferred)
        return PageMetadata(
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
            earliest_expiration=_instant(
                _find(statements, (tmp["earliestExpiration"],), preferred), warnings
            ),
            next_change=_instant(_find(statements, (tmp["nextChange"],), preferred), warnings),
            evaluated_at=_instant(_find(statements, (tmp["evaluatedAt"],), preferred), warnings),
            plain_view=_iri(_find(statements, (tmp["plainView"],), preferred)),
            changes=_iri(_find(statements, (tmp["changes"],), preferred)),
        )


class _Labels:
    """The labels that the metadata give to the data quads of the page."""

    def __init__(
        self,
        statements: Statements,
        vocabulary: Vocabulary,
        graphs_kept: bool,
        warnings: list[str],
    ) -> None:
        self._graphs_kept = graphs_kept
        self._by_subject: dict[tuple[str, str], dict[str, Label]] = {}
        self._by_object: dict[tuple[str, str, str, str], Label] = {}
        room = sum(len(said) for node in statements.values() for said in node.values())
        for node in statements.values():
            predicates = node.get(vocabulary["predicate"], ())
            if not predicates:
                continue
            label = _label(node, vocabulary, warnings)
            if label is None:
                continue
            graph = next(iter(node.get(vocabulary["graph"], ())), "") if graphs_kept else ""
            objects = node.get(vocabulary["object"], ())
            subjects = node.get(vocabulary["subject"], ())
            # Servers repeat one of the three at most; what they say is as long as what it means.
            room -= len(predicates) * len(subjects) * max(len(objects), 1)
            if room < 0:
                warnings.append("labels of more facts than there are")
                return
            for predicate in predicates:
                for subject in subjects:
                    for each in objects:
                        self._by_object[subject, predicate, each, graph] = label
                if not objects:
                    of_predicate = self._by_subject.setdefault((predicate, graph), {})
                    of_predicate.update(dict.fromkeys(subjects, label))

    def facts(self, data: Iterable[SaidLine], url: str) -> list[Fact]:
        """The data of the page of this URL, with their labels."""
        by_object, made = self._by_object, tuple.__new__
        found: list[Fact] = []
        last: tuple[str, str] | None = None
        by_subject: Mapping[str, Label] = {}
        for line in data:
            kept = line.kept or line.of_page(url)
            for quad, ours in zip(line.quads, kept, strict=True):
                subject, predicate, object_, graph = quad
                if graph and not self._graphs_kept:
                    graph = DEFAULT_GRAPH
                label = by_object.get((subject, predicate, object_, graph)) if by_object else None
                if label is None:
                    # Many facts of a page have one predicate.
                    if last is None or predicate != last[0] or graph != last[1]:
                        last = predicate, graph
                        by_subject = self._by_subject.get(last, {})
                    label = by_subject.get(subject)
                found.append(made(Fact, (ours, label)))
        return found


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


def _forms(
    statements: Statements, default_graph: str | None, tmp: Vocabulary, url: str
) -> tuple[Form, ...]:
    found: list[Form] = []
    maximum = tmp["maximum"]
    forms = {form: None for by in statements.values() for form in by.get(SEARCH, ())}
    for form in islice(forms, _MOST):
        node = statements.get(form, {})
        templates = [t for t in node.get(f"<{HYDRA}template>", ()) if is_literal(t)]
        roles: dict[str, str] = {}
        maxima: dict[str, int | None] = {}
        mappings = chain(node.get(MAPPING, ()), node.get(tmp["mapping"], ()))
        for mapping in islice(mappings, _MOST):
            entry = statements.get(mapping, {})
            variables = [v for v in entry.get(f"<{HYDRA}variable>", ())[:_MOST] if is_literal(v)]
            for property_ in entry.get(f"<{HYDRA}property>", ())[:_MOST]:
                if is_literal(property_):  # as hydra-python-core writes it
                    property_ = f"<{literal_parts(property_).lexical}>"
                role = "at" if property_ == tmp["at"] else _ROLES.get(property_)
                if role and variables:
                    roles[role] = literal_parts(variables[0]).lexical
                    maxima[role] = _number(next(iter(entry.get(maximum, ())), None))
        if templates and {"subject", "predicate", "object"} <= roles.keys():
            template = literal_parts(templates[0]).lexical
            try:
                if len(template) > _LONGEST_TEMPLATE:
                    raise ValueError(f"more than {_LONGEST_TEMPLATE} characters")
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
