"""From the bytes of a response to the quads and the metadata of a page.

Source: Triple Pattern Fragments (Hydra W3C Community Group), section 4; Quad Pattern Fragments;
this project's temporal metadata (see docs/client.md).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

from annotations.errors import AnnotationError
from annotations.instants import instant_of_term
from annotations.labels import Expiration, Fact, Interval, Label, at_instant
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.terms import DEFAULT_GRAPH, Quad
from tpf_client.errors import PageError
from tpf_client.fragments.bodies import essence, parse_page_body
from tpf_client.fragments.known_lines import Lines, SaidLine
from tpf_client.fragments.page import Description, KnownPage, PageMetadata, Statements
from tpf_client.fragments.page_description import (
    changed_statements,
    metadata_again,
    metadata_of,
    passing,
    spoken,
    statements_of,
)
from tpf_client.fragments.parts import split_metadata

ACCEPTED_FORMATS = (
    "application/trig,application/n-quads;q=0.9,text/turtle;q=0.6,"
    "application/n-triples;q=0.5,application/ld+json;q=0.3"
)

_LINES = ("application/trig", "text/turtle")
"""The media types of pages that may be read line by line."""
_WARNINGS = 20
"""Of what is wrong with the labels of a page, so many are told."""
_SHOWN = 200
"""Characters of a warning."""


class ReadPage(NamedTuple):
    """What a page says.

    Args:
        facts: its data, with their labels.
        metadata: what it says of itself.
        warnings: what is wrong with labels.
        known: what is remembered of it, for the next time that it is read; ``None``: its lines are
            not whole.
    """

    facts: tuple[Fact, ...]
    metadata: PageMetadata
    warnings: tuple[str, ...]
    known: KnownPage | None


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
        before: KnownPage | None = None,
    ) -> ReadPage:
        """What a page says.

        Args:
            body: the page.
            media_type: of the page.
            url: where it was read.
            bare: whether all of it is data.
            before: what is remembered of this page since it was read last; ``None``: its lines are
                not looked at one by one.

        Raises:
            ParseError: the body is not RDF of the announced type.
            PageError: the body is RDF, but says nothing about a fragment.
            PageTooLargeError: it takes more memory than is allowed.
        """
        lines = parts = described = None
        about: Sequence[Quad] = ()
        if before is not None and not bare and essence(media_type) in _LINES:
            # Only pages that change are read like that, and again.
            from tpf_client.fragments.lines import read_lines

            lines = read_lines(body, url, before.lines, self._most)
            parts = None if lines is None else lines.split()
        if before is not None and lines is not None and parts is not None:
            data, about_lines = parts
            described = _as_before(lines, before.description)
            if described is None:
                about = [quad for line in about_lines for quad in line.quads]
        else:
            quads = lines.quads() if lines else parse_page_body(body, media_type, url, self._most)
            given, about = (quads, []) if bare else split_metadata(quads, url)
            data = [SaidLine(given, 0)]
        if not about and described is None and not bare:
            raise PageError(url, "the page says nothing about a fragment: no metadata, no form")
        warnings: list[str] = []
        if described is not None:
            statements, vocabulary, known = described
        else:
            statements, known = statements_of(about), None
            vocabulary = spoken(statements, self._vocabulary)
        in_graphs = parts is not None or any(quad.graph for quad in about)
        labels = _Labels(statements, vocabulary, in_graphs, warnings)
        facts = tuple(labels.facts(data, url))
        if known is None:
            metadata = metadata_of(statements, vocabulary, url, warnings)
        else:
            metadata = metadata_again(known, statements, vocabulary, url, warnings)
        shown = dict.fromkeys(each[:_SHOWN] for each in warnings[:_WARNINGS])
        remembered: KnownPage | None = None
        if lines is not None:
            description = Description(statements, vocabulary, metadata)
            remembered = KnownPage(lines.known, None if parts is None else description)
        elif before is None:
            remembered = KnownPage()
        return ReadPage(facts, metadata, tuple(shown), remembered)


def _as_before(lines: Lines, before: Description | None) -> Description | None:
    """What a page says of itself, where that means what it meant, but for what is passing.

    Args:
        lines: those of the page.
        before: what it said before.
    """
    graphs = lines.known.graphs
    if before is None or lines.changes is None or not graphs:
        return None
    about = [change for change in lines.changes if change[0].quads[0].graph in graphs]
    found = changed_statements(before.statements, about)
    if found is None or not found[1] <= passing(before.vocabulary):
        return None
    return before._replace(statements=found[0])


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
        room = sum([len(said) for node in statements.values() for said in node.values()])
        of_facts = vocabulary["predicate"]
        for node in statements.values():
            predicates = node.get(of_facts, ())
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
        quads = [quad for line in data for quad in line.quads]
        kept = [quad for line in data for quad in line.kept or line.of_page(url)]
        made = tuple.__new__
        return [made(Fact, pair) for pair in zip(kept, self._of(quads), strict=True)]

    def _of(self, quads: Sequence[Quad]) -> Iterable[Label | None]:
        """The labels of these quads."""
        by_object, by_subject = self._by_object, self._by_subject
        if not by_object and not by_subject:
            return repeat(None, len(quads))
        kinds = set(map(itemgetter(1, 3), quads))
        if not by_object and len(kinds) == 1:
            # Most pages are of one predicate.
            return map(by_subject.get(self._named(*kinds.pop()), {}).get, map(itemgetter(0), quads))
        found: list[Label | None] = []
        for subject, predicate, object_, graph in quads:
            name = self._named(predicate, graph)
            label = by_object.get((subject, name[0], object_, name[1]))
            found.append(label or by_subject.get(name, {}).get(subject))
        return found

    def _named(self, predicate: str, graph: str) -> tuple[str, str]:
        return predicate, graph if self._graphs_kept else DEFAULT_GRAPH


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
