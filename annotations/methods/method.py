"""The interface of annotation methods: encode, decode, match and rewrite by shapes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

from annotations.errors import AnnotationError, DecodeError, EncodeError
from annotations.labels import Fact, FactKey, Label, overlap_error, overlaps
from annotations.methods.base import Naming, OnError, Part, RewriteOptions, Rewriting
from annotations.methods.names import is_minted
from annotations.methods.shapes import LabelledNodes, Shape, read_labels
from annotations.terms import Quad, QuadPattern, Term, TriplePattern

_FEW_FACTS: Final = 10_000
_FACTS_PER_STATEMENT: Final = 8
"""How many facts annotated data may say: so many, and so many for each label and each other quad.
Each label of a graph counts for each quad in it, so that a short body could say millions."""


class Method(ABC):
    """A stateless annotation method, listed in `METHODS`: its shapes, reader and rewriting."""

    name: str
    """Name in settings and URLs: ``named-graph``."""

    @abstractmethod
    def shapes(self, naming: Naming) -> tuple[Shape, ...]:
        """Return the quads that a labelled fact shows, first the one that holds its value."""

    @abstractmethod
    def read_facts(self, nodes: LabelledNodes, naming: Naming, report: OnError) -> Iterator[Fact]:
        """Yield facts of data without the triples of labels, in order."""

    @abstractmethod
    def rewrite(self, pattern: TriplePattern, options: RewriteOptions) -> Rewriting:
        """Return the pattern for labelled facts in data annotated by this method.

        It has one solution per fact and label; a variable predicate is the fact's. The naming is
        the foreign server's.
        """

    def encode(self, fact: Fact, naming: Naming) -> list[Quad]:
        """Return the quads of a fact; without a label, its own quad.

        Raises:
            EncodeError: the fact would itself be read as an annotation.
        """
        if reads_as_annotation(fact, naming):
            raise EncodeError(f"this would be read as an annotation: {' '.join(fact.quad).strip()}")
        if fact.label is None:
            return [fact.quad]
        return [shape.render(fact) for shape in _shapes(self, naming) if shape.shown_by(fact)]

    def match(self, pattern: QuadPattern, naming: Naming) -> Sequence[Part]:
        """Return the labelled facts that show quads matching `pattern`, and these quads.

        Parts are disjoint and ordered, for stable pages. The quads need not exist anywhere.
        """
        parts = (shape.match(pattern) for shape in _shapes(self, naming))
        return [part for part in parts if part is not None]

    def decode(
        self,
        quads: Iterable[Quad],
        naming: Naming,
        *,
        key: FactKey = "subject-predicate",
        on_error: OnError | None = None,
    ) -> list[Fact]:
        """Return the facts of annotated quads, in order; unlabelled ones included.

        A fact with an unreadable label is left out, or it would hold for ever; of overlapping
        labels the earliest is kept. `on_error` receives every problem; without it the first one is
        raised.

        Raises:
            DecodeError: an annotation is incomplete, contradicts itself or labels no fact; or there
                are too many facts.
            LabelError: a label cannot hold, or two labels of one fact overlap.
            InstantError: a label's instant is malformed or has no time zone.
        """
        report = on_error or _raise
        nodes = read_labels(quads, naming.vocabulary, report)
        facts: dict[Fact, None] = {}
        statements = len(nodes.rest) + sum(map(len, nodes.labels.values()))
        most = _FEW_FACTS + _FACTS_PER_STATEMENT * statements
        for count, fact in enumerate(self.read_facts(nodes, naming, report)):
            if count == most:
                report(DecodeError(f"more than {most} facts, of {statements} labels and quads"))
                break
            if fact.label is not None and reads_as_annotation(fact, naming):
                report(DecodeError(f"an annotation cannot be labelled: {' '.join(fact.quad)}"))
            else:
                facts[fact] = None
        for earlier, later in list(overlaps(facts, key)):
            report(overlap_error(earlier, later))
            del facts[later]
        return list(facts)


@lru_cache(maxsize=256)
def _shapes(method: Method, naming: Naming) -> tuple[Shape, ...]:
    return method.shapes(naming)


def reads_as_annotation(fact: Fact, naming: Naming) -> bool:
    """True for a fact that, stated plainly, would be read as an annotation."""
    predicate = fact.quad.predicate
    vocabulary = naming.vocabulary
    return predicate in vocabulary.label_predicates or (
        predicate in vocabulary.structure_predicates and is_minted(fact.quad.subject, naming)
    )


def _raise(error: AnnotationError) -> None:
    raise error


def labelled(quad: Quad, labels: Iterable[Label]) -> Iterator[Fact]:
    """One fact per label of a quad."""
    return (Fact(quad, label) for label in labels)


def without_fact(node: Term, why: str) -> DecodeError:
    """Return the error of a label that labels no fact."""
    return DecodeError(f"{node} has a label but labels no fact: {why}")


def linked_facts(
    nodes: LabelledNodes,
    position: Literal["predicate", "graph"],
    link: Term,
    otherwise: Term | None,
    report: OnError,
) -> Iterator[Fact]:
    """Yield facts whose quads hold the labelled node in a position, for the term that it links to.

    `otherwise` is the term of a node without a link.
    """
    linked: dict[Term, dict[Term, None]] = {}
    for quad in nodes.rest:
        if quad.predicate == link and quad.subject in nodes.labels:
            linked.setdefault(quad.subject, {})[quad.object] = None
    used: set[Term] = set()
    for quad in nodes.rest:
        node: Term = getattr(quad, position)
        is_link = quad.predicate == link and quad.subject in nodes.labels
        if is_link and (position == "graph" or node not in nodes.labels):
            continue
        if node not in nodes.labels:
            yield Fact(quad)
            continue
        used.add(node)
        terms = list(linked.get(node, () if otherwise is None else (otherwise,)))
        if len(terms) == 1:
            term: dict[str, Any] = {position: terms[0]}
            yield from labelled(quad._replace(**term), nodes.labels[node])
    for node in nodes.labels:
        if otherwise is None and node not in linked:
            report(without_fact(node, f"no {link}"))
        elif len(linked.get(node, ())) > 1:
            report(DecodeError(f"{node} has {len(linked[node])} values of {link}"))
        elif node not in used:
            where = "lies in this graph" if position == "graph" else "has it as its predicate"
            report(without_fact(node, f"no statement {where}"))
