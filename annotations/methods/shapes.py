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
    FactPattern,
    Naming,
    OnError,
    Part,
    RewriteOptions,
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

_Check: TypeAlias = Callable[[Fact], bool]


class Lookup(NamedTuple):
    """The conditions so far on the facts to look up."""

    facts: FactPattern
    checks: tuple[_Check, ...] = ()


class Slot(Protocol):
    """One position of a shape."""

    def term(self, fact: Fact) -> Term:
        """Return the term of the position for a fact."""

    def require(self, term: Term, lookup: Lookup) -> Lookup | None:
        """Narrow a lookup to facts that hold `term` here; ``None``: there are none."""


@dataclass(frozen=True, slots=True)
class FixedTerm:
    """A constant term."""

    value: Term

    def term(self, fact: Fact) -> Term:  # noqa: ARG002
        return self.value

    def require(self, term: Term, lookup: Lookup) -> Lookup | None:
        return lookup if term == self.value else None


@dataclass(frozen=True, slots=True)
class Position:
    """A term of the fact itself."""

    name: Literal["subject", "predicate", "object", "graph"]

    def term(self, fact: Fact) -> Term:
        """The term in this position of the fact."""
        term: Term = getattr(fact.quad, self.name)
        return term

    def require(self, term: Term, lookup: Lookup) -> Lookup | None:
        bound = getattr(lookup.facts, self.name)
        if (bound is None and (term != DEFAULT_GRAPH or self.name == "graph")) or (
            bound == NAMED_GRAPHS and term != DEFAULT_GRAPH
        ):
            narrowed: dict[str, Any] = {self.name: term}
            return lookup._replace(facts=lookup.facts._replace(**narrowed))
        return lookup if bound == term else None


@dataclass(frozen=True, slots=True)
class Minted:
    """A name minted for the fact."""

    kind: NameKind
    naming: Naming

    def term(self, fact: Fact) -> Term:
        return minted(self.kind, fact, self.naming)

    def require(self, term: Term, lookup: Lookup) -> Lookup | None:
        token = token_of(term, self.kind, self.naming)
        if token is None or lookup.facts.identity not in (None, token):
            return None
        return lookup._replace(facts=lookup.facts._replace(identity=token))


@dataclass(frozen=True, slots=True)
class FragmentIri:
    """The IRI of the fragment that holds the fact alone."""

    naming: Naming

    def term(self, fact: Fact) -> Term:
        return fragment_iri(fact.quad, self.naming)

    def require(self, term: Term, lookup: Lookup) -> Lookup | None:
        """The facts with the quad of this fragment."""
        quad = quad_of_fragment(term, self.naming)
        if quad is None:
            return None
        return _require_all(quad, lookup, (SUBJECT, PREDICATE, OBJECT, GRAPH))


@dataclass(frozen=True, slots=True)
class TripleTerm:
    """The fact as an RDF 1.2 triple term."""

    def term(self, fact: Fact) -> Term:
        return triple_term(fact.quad.triple)

    def require(self, term: Term, lookup: Lookup) -> Lookup | None:
        try:
            triple = triple_of_term(term)
        except TermError:
            return None
        if triple_term(triple) != term:
            return None
        return _require_all(triple, lookup, (SUBJECT, PREDICATE, OBJECT))


def _require_all(
    terms: Sequence[Term], lookup: Lookup, positions: Sequence[Position]
) -> Lookup | None:
    narrowed: Lookup | None = lookup
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

    def require(self, term: Term, lookup: Lookup) -> Lookup | None:
        """Narrow a lookup to the facts with a label that starts or ends then."""
        try:
            instant = instant_of_term(term)
        except InstantError:
            return None
        if instant_term(instant) != term:
            return None
        facts = lookup.facts
        if getattr(facts, self.bound) not in (None, instant):
            return None
        is_start = self.bound == "start"
        facts = facts._replace(start=instant) if is_start else facts._replace(end=instant)
        return lookup._replace(facts=facts)


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
        lookup: Lookup | None = Lookup(FactPattern(graph=graph, labelling=self.labelling))
        bound: dict[Variable, Slot] = {}
        for expected, slot in zip(pattern, self[:4], strict=True):
            if lookup is None:
                return None
            if not is_variable(expected):
                lookup = slot.require(Term(expected), lookup)
            elif (earlier := bound.setdefault(Variable(expected), slot)) is not slot:
                lookup = _equal(earlier, slot, lookup)
        if lookup is None:
            return None
        return Part(lookup.facts, self.render, _all_of(lookup.checks))


def _equal(left: Slot, right: Slot, lookup: Lookup) -> Lookup | None:
    if isinstance(left, FixedTerm):
        return right.require(left.value, lookup)
    if isinstance(right, FixedTerm):
        return left.require(right.value, lookup)
    if isinstance(left, Position) and isinstance(right, Position):
        return Lookup(
            lookup.facts._replace(repeats=True),
            (*lookup.checks, lambda fact: left.term(fact) == right.term(fact)),
        )
    # What is left is a name derived from the fact beside a term of the fact, another name or an
    # instant. A digest cannot hold itself, an IRI or a triple term is longer than its parts, and
    # an instant is a literal.
    return lookup if left == right else None


def _all_of(checks: tuple[_Check, ...]) -> _Check | None:
    if len(checks) > 1:
        return lambda fact: all(check(fact) for check in checks)
    return checks[0] if checks else None


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


class LabelPatterns(NamedTuple):
    """The patterns of the label of a node, and the variables of its instants."""

    patterns: tuple[QuadPattern, ...]
    initial: Variable | None
    final: Variable


def label_patterns(node: Variable, options: RewriteOptions) -> LabelPatterns:
    """Return the patterns of the label of `node`, in any graphs."""
    labelling, fresh, vocabulary = options.labelling, options.fresh, options.naming.vocabulary

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
