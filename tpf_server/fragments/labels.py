"""The labels of a page's facts, as metadata.

Facts that share predicate, graph and label share a node, because a feed gives the same label to
all that it says at once. A node reads: every quad on this page with this predicate, one of these
subjects, in this graph (and, where it is given, with this object) carries this label.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

from annotations.instants import instant_term
from annotations.labels import Label
from annotations.namespaces import Vocabulary
from annotations.terms import DEFAULT_GRAPH, Term, Triple
from tpf_server.fragments.view import LabelledRows

_Spot: TypeAlias = tuple[Term, Term, Term]
# Many labels share their instants.
_instant_term = lru_cache(maxsize=4096)(instant_term)


def label_triples(page: LabelledRows, vocabulary: Vocabulary) -> list[Triple]:
    """The nodes that state the labels of the labelled quads of a page."""
    columns, labels = page
    places = list(zip(columns.subjects, columns.predicates, columns.graphs, strict=True))
    spots: dict[_Spot, Label | None] = {}
    ambiguous: set[_Spot] = set()
    for spot, label in zip(places, labels, strict=True):
        known = spots.setdefault(spot, label)
        # Labels of one batch are one object, and comparing those takes longer than looking.
        if known is not label and known != label:
            ambiguous.add(spot)
    shared: dict[tuple[Term, Term, Label], dict[Term, None]] = {}
    single: list[tuple[_Spot, Term, Label]] = []
    for spot, value, label in zip(places, columns.objects, labels, strict=True):
        if label is None:
            continue
        if ambiguous and spot in ambiguous:
            single.append((spot, value, label))
        else:
            subject, predicate, graph = spot
            shared.setdefault((predicate, graph, label), {})[subject] = None
    triples: list[Triple] = []
    nodes = _nodes()
    for (predicate, graph, label), subjects in shared.items():
        triples += _node(next(nodes), label, predicate, subjects, graph, vocabulary)
    for (subject, predicate, graph), value, label in single:
        node = next(nodes)
        triples += _node(node, label, predicate, (subject,), graph, vocabulary)
        triples.append(Triple(node, vocabulary["object"], value))
    return triples


def _nodes() -> Iterator[Term]:
    number = 0
    while True:
        number += 1
        yield Term(f"_:l{number}")


def _node(
    node: Term,
    label: Label,
    predicate: Term,
    subjects: Iterable[Term],
    graph: Term,
    vocabulary: Vocabulary,
) -> Iterator[Triple]:
    if label.start is None:
        yield Triple(node, vocabulary.expiration, _instant_term(label.end))
    elif label.instant is not None:
        yield Triple(node, vocabulary.instant, _instant_term(label.instant))
    else:
        yield Triple(node, vocabulary.initial, _instant_term(label.start))
        yield Triple(node, vocabulary.final, _instant_term(label.end))
    yield Triple(node, vocabulary["predicate"], predicate)
    says_subject = vocabulary["subject"]
    for subject in subjects:
        yield Triple(node, says_subject, subject)
    if graph != DEFAULT_GRAPH:
        yield Triple(node, vocabulary["graph"], graph)
