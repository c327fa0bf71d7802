"""The triples that state a label, written, asked for and read; the same for every method.

``X tmp:expiration "t"`` or ``X tmp:interval I . I tmp:initial "t1" ; tmp:final "t2"``. The node I
of an interval is a minted IRI, so that pages are stable. Read are also blank nodes, and
``tmp:intervalInitial`` and ``tmp:intervalFinal`` directly on X, as the published inserter wrote
them, and ``X tmp:instant "t"`` (Taelman et al. 2016, section 2.2).
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache, partial
from typing import NamedTuple, TypeAlias

from annotations.errors import AnnotationError, DecodeError
from annotations.instants import instant_of_term
from annotations.labels import Expiration, Interval, Label, at_instant
from annotations.methods.base import LabelForm, Naming, OnError
from annotations.methods.shapes import FixedTerm, LabelInstant, Minted, Shape, Slot
from annotations.namespaces import Vocabulary
from annotations.terms import Quad, QuadPattern, Term, Variable

_Values: TypeAlias = dict[Term, dict[Term, None]]
"""What is stated of one node: the values of each label predicate."""


def label_shapes(node: Slot, graph: Slot, naming: Naming) -> tuple[Shape, ...]:
    """The shapes of a label of `node`, all in one graph."""
    vocabulary = naming.vocabulary
    interval = Minted("interval", naming)
    start, end = LabelInstant("start"), LabelInstant("end")
    return (
        Shape(node, FixedTerm(vocabulary.expiration), end, graph, "expiration"),
        Shape(node, FixedTerm(vocabulary.interval), interval, graph, "interval"),
        Shape(interval, FixedTerm(vocabulary.initial), start, graph, "interval"),
        Shape(interval, FixedTerm(vocabulary.final), end, graph, "interval"),
    )


class LabelPatterns(NamedTuple):
    """What to ask for the label of a node, and the variables of its instants."""

    patterns: tuple[QuadPattern, ...]
    initial: Variable | None
    final: Variable


def label_patterns(
    node: Variable, labelling: LabelForm, fresh: Callable[[str], Variable], vocabulary: Vocabulary
) -> LabelPatterns:
    """The patterns that match the label of `node`, in whatever graphs its triples lie."""

    def pattern(subject: Variable, predicate: Term, value: Variable) -> QuadPattern:
        return QuadPattern(subject, predicate, value, fresh("labelGraph"))

    final = fresh("final")
    if labelling == "expiration":
        return LabelPatterns((pattern(node, vocabulary.expiration, final),), None, final)
    if labelling == "instant":
        return LabelPatterns((pattern(node, vocabulary.instant, final),), final, final)
    initial = fresh("initial")
    if labelling == "older interval":
        older = (
            pattern(node, vocabulary.interval_initial, initial),
            pattern(node, vocabulary.interval_final, final),
        )
        return LabelPatterns(older, initial, final)
    interval = fresh("interval")
    patterns = (
        pattern(node, vocabulary.interval, interval),
        pattern(interval, vocabulary.initial, initial),
        pattern(interval, vocabulary.final, final),
    )
    return LabelPatterns(patterns, initial, final)


class LabelledNodes(NamedTuple):
    """The labels found in annotated data, and the quads that belong to no label.

    A node with an unreadable label is there with the labels that could be read, perhaps none: what
    it labels must not be taken for static.
    """

    labels: dict[Term, list[Label]]
    rest: list[Quad]


def read_labels(quads: Iterable[Quad], vocabulary: Vocabulary, report: OnError) -> LabelledNodes:
    """Take the triples that state labels out of annotated data; repeated quads count once.

    Args:
        quads: annotated data.
        vocabulary: the predicates of labels.
        report: called with every problem.
    """
    rest: list[Quad] = []
    stated: dict[Term, _Values] = {}
    for quad in dict.fromkeys(quads):
        if quad.predicate not in vocabulary.label_predicates:
            rest.append(quad)
            continue
        # The same statement may lie in several graphs.
        stated.setdefault(quad.subject, {}).setdefault(quad.predicate, {})[quad.object] = None
    bounds = {vocabulary.initial, vocabulary.final}
    intervals = {node for node, values in stated.items() if values.keys() <= bounds}

    @cache
    def interval(node: Term) -> Label:
        """The label that a node is, which any number of others may share."""
        return _interval(node, stated.get(node, {}), vocabulary.initial, vocabulary.final)

    labels = {
        node: list(_labels_of(node, values, interval, vocabulary, report))
        for node, values in stated.items()
        if node not in intervals
    }
    used = {term for values in stated.values() for term in values.get(vocabulary.interval, ())}
    for node in stated:
        if node in intervals and node not in used:
            report(DecodeError(f"nothing is labelled with the interval {node}"))
    return LabelledNodes(labels, rest)


def _labels_of(
    node: Term,
    values: _Values,
    interval: Callable[[Term], Label],
    vocabulary: Vocabulary,
    report: OnError,
) -> Iterator[Label]:
    readers = [partial(_expiration, term) for term in values.get(vocabulary.expiration, ())]
    readers += [partial(_instant, term) for term in values.get(vocabulary.instant, ())]
    intervals = [partial(interval, term) for term in values.get(vocabulary.interval, ())]
    older = (vocabulary.interval_initial, vocabulary.interval_final)
    if not values.keys().isdisjoint(older):
        intervals.append(partial(_interval, node, values, *older))
    for read in (*readers, *intervals):
        try:
            yield read()
        except AnnotationError as error:
            report(error)


def _expiration(term: Term) -> Label:
    return Expiration(instant_of_term(term))


def _instant(term: Term) -> Label:
    return at_instant(instant_of_term(term))


def _interval(node: Term, values: _Values, initial: Term, final: Term) -> Label:
    return Interval(
        _the_instant(node, values, initial),
        _the_instant(node, values, final),
    )


def _the_instant(node: Term, values: _Values, predicate: Term) -> datetime:
    terms = values.get(predicate, {})
    if len(terms) != 1:
        raise DecodeError(f"{node} needs exactly one {predicate}, found {len(terms)}")
    (term,) = terms
    return instant_of_term(term)
