"""The interface of annotation methods.

Every method encodes a fact as quads, decodes quads to facts, rewrites a triple pattern for clients
that read annotated data of others, and finds the labelled facts that answer a quad pattern over the
annotated data, so that the annotated quads need not exist anywhere. Encoding, matching and the
frame of decoding follow from the method's shapes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from annotations.errors import AnnotationError, DecodeError, EncodeError
from annotations.labels import Fact, FactKey, Label, overlap_error, overlaps
from annotations.methods.base import LabelForm, Naming, OnError, Part, Rewriting
from annotations.methods.names import is_minted
from annotations.methods.shapes import LabelledNodes, Shape, read_labels
from annotations.terms import Quad, QuadPattern, Term, TriplePattern, Variable

_FEW_FACTS: Final = 10_000
_FACTS_PER_STATEMENT: Final = 8
"""How many facts annotated data may say: so many, and so many for each label and each other quad.
Each label of a graph counts for each quad in it, so that a short body could say millions."""


class Method(ABC):
    """An annotation method: its shapes, its reader and its rewriting.

    Methods are stateless and listed in `METHODS`.
    """

    name: str
    """Name in settings and URLs: ``named-graph``."""

    @abstractmethod
    def shapes(self, naming: Naming) -> tuple[Shape, ...]:
        """Return the quads that a labelled fact shows, first the quad that holds its value."""

    @abstractmethod
    def read_facts(self, nodes: LabelledNodes, naming: Naming, report: OnError) -> Iterator[Fact]:
        """Return the facts of data without the triples of labels, in the order of the quads.

        Labels and quads are joined lazily, because there may be too many.
        """

    @abstractmethod
    def rewrite(
        self,
        pattern: TriplePattern,
        labelling: LabelForm,
        fresh: Callable[[str], Variable],
        naming: Naming,
    ) -> Rewriting:
        """Return the pattern for data annotated by this method.

        It matches labelled facts only, one solution per fact and label. A variable as predicate
        stands for the predicate of the fact: the triples of annotations have no label, so the join
        with the label excludes them.

        Args:
            pattern: of the query.
            labelling: the kind of label of the data, and how it is written.
            fresh: makes a variable that occurs nowhere else, from a hint for its name.
            naming: vocabulary and IRIs (of the foreign server).
        """

    def encode(self, fact: Fact, naming: Naming) -> list[Quad]:
        """Return the quads of a fact; a fact without a label is its own quad.

        Raises:
            EncodeError: the fact would itself be read as an annotation.
        """
        if reads_as_annotation(fact, naming):
            raise EncodeError(f"this would be read as an annotation: {' '.join(fact.quad).strip()}")
        if fact.label is None:
            return [fact.quad]
        return [shape.render(fact) for shape in _shapes(self, naming) if shape.shown_by(fact)]

    def match(self, pattern: QuadPattern, naming: Naming) -> Sequence[Part]:
        """Return which labelled facts show quads that match `pattern`, and which quads.

        The parts are disjoint and in a fixed order, so that pages are stable.
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
        """Return the facts of annotated quads, in their order; unlabelled ones included.

        Repeated quads count once. A fact whose label cannot be read is left out, because without
        the label it would hold for ever; of labels that overlap the earliest is kept. `on_error` is
        called with every problem; without it the first one is raised.

        Raises:
            DecodeError: an annotation is incomplete, contradicts itself or labels no fact; or there
                are too many facts, the rest of which is not read.
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
    """True for a fact that, stated plainly, would be read as part of an annotation.

    Its predicate is one of a label, or links a minted name to a fact. No method can encode it, so a
    store of facts refuses it.
    """
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
    """The error of a label that labels no fact."""
    return DecodeError(f"{node} has a label but labels no fact: {why}")
