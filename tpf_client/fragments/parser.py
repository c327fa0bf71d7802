"""From the bytes of a response to the quads and the metadata of a page.

Source: Triple Pattern Fragments (Hydra W3C Community Group), section 4; Quad Pattern Fragments;
this project's temporal metadata (see docs/client.md).
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from annotations.labels import Fact
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.terms import Quad
from tpf_client.errors import PageError
from tpf_client.fragments.bodies import essence, parse_page_body
from tpf_client.fragments.known_lines import Lines, SaidLine
from tpf_client.fragments.page import Description, KnownPage, PageMetadata
from tpf_client.fragments.page_description import (
    changed_statements,
    metadata_again,
    metadata_of,
    owning,
    passing,
    spoken_vocabulary,
    statements_of,
)
from tpf_client.fragments.page_labels import label_nodes, labels_by_node, owners_of
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
        over: Callable[[], bool] = lambda: False,
    ) -> ReadPage:
        """What a page says.

        Args:
            body: the page.
            media_type: of the page.
            url: where it was read.
            bare: whether all of it is data.
            before: what is remembered of this page since it was read last; ``None``: its lines are
                not looked at one by one.
            over: whether nobody wants it any more; asked again and again.

        Raises:
            ParseError: the body is not RDF of the announced type.
            PageError: the body is RDF, but says nothing about a fragment.
            PageTooLargeError: it takes more memory than is allowed.
            ClosedError: nobody wants it any more.
        """
        lines = parts = described = None
        about: Sequence[Quad] = ()
        if before is not None and not bare and essence(media_type) in _LINES:
            # Only pages that change are read like that, and again.
            from tpf_client.fragments.lines import read_lines

            lines = read_lines(body, url, before.lines, self._most)
            parts = None if lines is None else lines.split(url)
        if before is not None and lines is not None and parts is not None:
            data, about_lines = parts
            described = _as_before(lines, before.description)
            if described is None:
                about = [quad for line in about_lines for quad in line.quads]
        else:
            quads = (
                lines.quads() if lines else parse_page_body(body, media_type, url, self._most, over)
            )
            given, about = (quads, []) if bare else split_metadata(quads, url)
            data = [SaidLine(given, 0)]
        if not about and described is None and not bare:
            raise PageError(url, "the page says nothing about a fragment: no metadata, no form")
        warnings: list[str] = []
        if described is not None:
            statements, vocabulary, known, owners = described
        else:
            statements, known, owners = statements_of(about), None, None
            vocabulary = spoken_vocabulary(statements, self._vocabulary)
        labels = labels_by_node(
            label_nodes(statements, vocabulary), statements, vocabulary, warnings
        )
        if owners is None or owners.labelled != labels.keys():
            owners = owners_of(
                [quad for line in data for quad in line.quads],
                labels, statements, vocabulary, warnings,
                graphs_kept=parts is not None or any(quad.graph for quad in about),
            )  # fmt: skip
        kept = [quad for line in data for quad in line.kept or line.of_page(url)]
        made, labelled = tuple.__new__, map(labels.get, owners.nodes)
        facts = tuple([made(Fact, pair) for pair in zip(kept, labelled, strict=True)])
        if known is None:
            metadata = metadata_of(statements, vocabulary, url, warnings)
        else:
            metadata = metadata_again(known, statements, vocabulary, url, warnings)
        shown = dict.fromkeys(each[:_SHOWN] for each in warnings[:_WARNINGS])
        remembered: KnownPage | None = None
        if lines is not None:
            description = Description(statements, vocabulary, metadata, owners)
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
    found = changed_statements(before.statements, about, passing(before.vocabulary))
    if found is None:
        return None
    same = before.owners is not None and before.owners.lasting
    same = same and found[1].isdisjoint(owning(before.vocabulary))
    return before._replace(statements=found[0], owners=before.owners if same else None)
