"""The shape of an annotation: templates of quads, rendered to encode, inverted to match."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from annotations.errors import AnnotationError, DecodeError, InstantError, TermError
from annotations.instants import instant_of_term, instant_term
from annotations.labels import Expiration, Fact, Interval, Label, Labelling, at_instant
from annotations.methods.base import (
    NAMED_GRAPHS,
    Derived,
    FactPattern,
    Naming,
    OnError,
    Part,
    RewriteOptions,
    Rewriting,
)
from annotations.methods.names import (
    NameKind,
    fragment_iri,
    minted,
    quad_of_fragment,
    token_of,
)
from annotations.namespaces import Vocabulary
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    QuadPattern,
    Term,
    Variable,
    is_variable,
    triple_of_term,
    triple_term,
)


class Slot(Protocol):
    """One position of a shape."""

    def term(self, fact: Fact) -> Term:
        """Return the term of the position for a fact."""

    def require(self, term: Term, facts: FactPattern) -> FactPattern | None:
        """Narrow a pattern to facts that hold `term` here; ``None``: there are none."""


@dataclass(frozen=True, slots=True)
class FixedTerm:
    """A constant term."""

    value: Term

    def term(self, fact: Fact) -> Term:  # noqa: ARG002
        return self.value

    def require(self, term: Term, facts: FactPattern) -> FactPattern | None:
        return facts if term == self.value else None


@dataclass(frozen=True, slots=True)
class Position:
    """A term of the fact itself."""

    name: Literal["subject", "predicate", "object", "graph"]

    def term(self, fact: Fact) -> Term:
        """The term in this position of the fact."""
        term: Term = getattr(fact.quad, self.name)
        return term

    def require(self, term: Term, facts: FactPattern) -> FactPattern | None:
        bound = getattr(facts, self.name)
        if (bound is None and (term != DEFAULT_GRAPH or self.name == "graph")) or (
            bound == NAMED_GRAPHS and term != DEFAULT_GRAPH
        ):
            narrowed: dict[str, Any] = {self.name: term}
            return facts._replace(**narrowed)
        return facts if bound == term else None


@dataclass(frozen=True, slots=True)
class Minted:
    """A name minted for the fact."""

    kind: NameKind
    naming: Naming

    def term(self, fact: Fact) -> Term:
        return minted(self.kind, fact, self.naming)

    def require(self, term: Term, facts: FactPattern) -> FactPattern | None:
        token = token_of(term, self.kind, self.naming)
        if token is None or facts.identity not in (None, token):
            return None
        return facts._replace(identity=token)


@dataclass(frozen=True, slots=True)
class FragmentIri:
    """The IRI of the fragment that holds the fact alone."""

    naming: Naming

    def term(self, fact: Fact) -> Term:
        return fragment_iri(fact.quad, self.naming)

    def require(self, term: Term, facts: FactPattern) -> FactPattern | None:
        """The facts with the quad of this fragment."""
        quad = quad_of_fragment(term, self.naming)
        if quad is None:
            return None
        return _require_all(quad, facts, (SUBJECT, PREDICATE, OBJECT, GRAPH))


@dataclass(frozen=True, slots=True)
class TripleTerm:
    """The fact as an RDF 1.2 triple term."""

    def term(self, fact: Fact) -> Term:
        return triple_term(fact.quad.triple)

    def require(self, term: Term, facts: FactPattern) -> FactPattern | None:
        try:
            triple = triple_of_term(term)
        except TermError:
            return None
        if triple_term(triple) != term:
            return None
        return _require_all(triple, facts, (SUBJECT, PREDICATE, OBJECT))


def _require_all(
    terms: Sequence[Term], facts: FactPattern, positions: Sequence[Position]
) -> FactPattern | None:
    narrowed: FactPattern | None = facts
    for term, position in zip(terms, positions, strict=True):
        if narrowed is not None:
            narrowed = position.require(term, narrowed)
    return narrowed


@dataclass(frozen=True, slots=True)
class LabelInstant:
    """The start or the end of the label."""

    bound: Literal["start", "end"]

    def term(self, fact: Fact) -> Term:
        return instant_term(getattr(fact.label, self.bound))

    def require(self, term: Term, facts: FactPattern) -> FactPattern | None:
        """Narrow a pattern to the facts with a label that starts or ends then."""
        try:
            instant = instant_of_term(term)
        except InstantError:
            return None
        if instant_term(instant) != term:
            return None
        if getattr(facts, self.bound) not in (None, instant):
            return None
        narrowed: dict[str, Any] = {self.bound: instant}
        return facts._replace(**narrowed)


SUBJECT = Position("subject")
PREDICATE = Position("predicate")
OBJECT = Position("object")
GRAPH = Position("graph")
DEFAULT = FixedTerm(DEFAULT_GRAPH)


class Shape(NamedTuple):
    """One quad that labelled facts show.

    `labelling`: only facts with this kind of label; `named_only`: only facts in a named graph.
    """

    subject: Slot
    predicate: Slot
    object: Slot
    graph: Slot
    labelling: Labelling | None = None
    named_only: bool = False

    def shown_by(self, fact: Fact) -> bool:
        """True where a labelled fact shows this quad."""
        if self.named_only and fact.quad.graph == DEFAULT_GRAPH:
            return False
        return self.labelling is None or (
            fact.label is not None and fact.label.labelling == self.labelling
        )

    def render(self, fact: Fact) -> Quad:
        return Quad(
            self.subject.term(fact),
            self.predicate.term(fact),
            self.object.term(fact),
            self.graph.term(fact),
        )

    def match(self, pattern: QuadPattern) -> Part | None:
        """Return the facts that show a quad of this shape matching `pattern`, if any."""
        graph = NAMED_GRAPHS if self.named_only else None
        facts: FactPattern | None = FactPattern(graph=graph, labelling=self.labelling)
        bound: dict[Variable, Slot] = {}
        equal: list[tuple[Slot, Slot]] = []
        for expected, slot in zip(pattern, self[:4], strict=True):
            if facts is None:
                return None
            if not is_variable(expected):
                facts = slot.require(Term(expected), facts)
                continue
            earlier = bound.setdefault(Variable(expected), slot)
            if isinstance(earlier, FixedTerm):
                facts = slot.require(earlier.value, facts)
            elif isinstance(slot, FixedTerm):
                facts = earlier.require(slot.value, facts)
            elif (
                earlier is not slot and isinstance(earlier, Position) and isinstance(slot, Position)
            ):
                equal.append((earlier, slot))
            elif earlier != slot:
                # A name derived from the fact beside a term of the fact, another name or an
                # instant. A digest cannot hold itself, an IRI or a triple term is longer than its
                # parts, and an instant is a literal.
                return None
        if facts is None:
            return None
        if not equal:
            return Part(facts, self.render)

        def repeats(fact: Fact) -> bool:
            return all(one.term(fact) == other.term(fact) for one, other in equal)

        return Part(facts._replace(repeats=True), self.render, repeats)


# The triples that state a label, written, asked for and read; the same for every method.
#
# ``X tmp:expiration "t"`` or ``X tmp:interval I . I tmp:initial "t1" ; tmp:final "t2"``. The node I
# of an interval is a minted IRI, so that pages are stable. Read are also blank nodes, and
# ``tmp:intervalInitial`` and ``tmp:intervalFinal`` directly on X, as the published inserter wrote
# them, and ``X tmp:instant "t"`` (Taelman et al. 2016, section 2.2).

_Values: TypeAlias = dict[Term, dict[Term, None]]
"""What is stated of one node: the values of each label predicate."""


def label_shapes(node: Slot, graph: Slot, naming: Naming) -> tuple[Shape, ...]:
    """Return the shapes of a label of `node`, all in one graph."""
    vocabulary = naming.vocabulary
    interval = Minted("interval", naming)
    start, end = LabelInstant("start"), LabelInstant("end")
    return (
        Shape(node, FixedTerm(vocabulary.expiration), end, graph, "expiration"),
        Shape(node, FixedTerm(vocabulary.interval), interval, graph, "interval"),
        Shape(interval, FixedTerm(vocabulary.initial), start, graph, "interval"),
        Shape(interval, FixedTerm(vocabulary.final), end, graph, "interval"),
    )


def rewriting(
    node: Variable,
    patterns: Iterable[QuadPattern],
    options: RewriteOptions,
    graph: Variable | None = None,
    derived: Derived | None = None,
) -> Rewriting:
    """Return patterns of facts, and those of the label of `node`, in any graphs."""
    labelling, fresh, vocabulary = options.labelling, options.fresh, options.naming.vocabulary

    def with_label(initial: Variable | None, *stated: tuple[Variable, Term, Variable]) -> Rewriting:
        label = (QuadPattern(*triple, fresh("labelGraph")) for triple in stated)
        return Rewriting((*patterns, *label), initial, final, graph, derived)

    final = fresh("final")
    if labelling == "expiration":
        return with_label(None, (node, vocabulary.expiration, final))
    if labelling == "instant":
        return with_label(final, (node, vocabulary.instant, final))
    initial = fresh("initial")
    if labelling == "older interval":
        return with_label(
            initial,
            (node, vocabulary.interval_initial, initial),
            (node, vocabulary.interval_final, final),
        )
    interval = fresh("interval")
    return with_label(
        initial,
        (node, vocabulary.interval, interval),
        (interval, vocabulary.initial, initial),
        (interval, vocabulary.final, final),
    )


class LabelledNodes(NamedTuple):
    """The labels in annotated data, and the quads that belong to no label."""

    labels: dict[Term, list[Label]]
    rest: list[Quad]


def read_labels(quads: Iterable[Quad], vocabulary: Vocabulary, report: OnError) -> LabelledNodes:
    """Separate label triples from annotated data; repeated quads count once."""
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
    start, end = [
        instant_of_term(the_only(node, each, values.get(each, ()))) for each in (initial, final)
    ]
    return Interval(start, end)


def the_only(node: Term, predicate: Term, values: Collection[Term]) -> Term:
    """Return the value of a predicate that a node needs exactly once."""
    if len(values) != 1:
        raise DecodeError(f"{node} needs exactly one {predicate}, found {len(values)}")
    (value,) = values
    return value
