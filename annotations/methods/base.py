"""What an annotation method is: one fact, four directions.

Every method encodes a fact as quads, decodes quads to facts, rewrites a triple pattern for
clients that read annotated data of others, and tells a server which labelled facts answer a
quad pattern over the annotated data, so that the annotated quads need not exist anywhere.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from annotations.labels import Fact, Label, Labelling
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.terms import Quad, QuadPattern, Term, TriplePattern, Variable


@dataclass(frozen=True, slots=True)
class Naming:
    """How annotated data are named: the vocabulary and the prefixes of minted IRIs.

    Args:
        fact_base: absolute IRI that minted names (singleton properties, graphs, reifiers, interval
            nodes) start with. Minted names are functions of the fact and its label's identity
            (the start of an interval; nothing of an expiration), so that pages are stable.
        fragment_url: the URL of the dataset, from which `fragment_iri` makes the IRI of the
            fragment of one triple exactly as the form's template expands it.
    """

    fact_base: str
    fragment_url: str
    vocabulary: Vocabulary = field(default=DEFAULT_VOCABULARY)


class FactPattern(NamedTuple):
    """Which labelled facts to look up; ``None`` leaves a position open.

    `graph` is `DEFAULT_GRAPH` for the default graph alone. `identity` is the token that ends the
    names minted for a fact (see `annotations.methods.names.identity`).
    """

    subject: Term | None = None
    predicate: Term | None = None
    object: Term | None = None
    graph: Term | None = None
    identity: str | None = None
    labelling: Labelling | None = None


class Part(NamedTuple):
    """One quad of a method's shape that a pattern can match.

    Every fact that matches `facts` and passes `residual` (``None``: all pass) shows exactly one
    quad of this part, ``render(fact)``, and different facts show different quads; so the count of
    facts is the count of quads.
    """

    facts: FactPattern
    render: Callable[[Fact], Quad]
    residual: Callable[[Fact], bool] | None = None


class Rewriting(NamedTuple):
    """A triple pattern as it must be asked of data annotated by one method.

    Args:
        patterns: the quad patterns to match together. The value variables of the original pattern
            keep their names; the graph position is a variable where the graph matters.
        initial: variable bound to the start of the label (interval labelling), else ``None``.
        final: variable bound to the end of the label.
        graph: variable bound to the graph of the fact itself (not an annotation graph), or ``None``
            where the form does not tell it.
    """

    patterns: tuple[QuadPattern, ...]
    initial: Variable | None
    final: Variable
    graph: Variable | None = None


class Method(Protocol):
    """An annotation method. Implementations are stateless and listed in `METHODS`."""

    name: str
    """Name in settings and URLs: ``named-graph``."""

    def encode(self, fact: Fact, naming: Naming) -> list[Quad]:
        """The quads that say this fact; a fact without a label is its own quad."""

    def decode(self, quads: Iterable[Quad], naming: Naming) -> list[Fact]:
        """The facts that these quads say, in the order of their quads; unlabelled ones included.

        Raises:
            DecodeError: an annotation is incomplete or contradicts itself.
            LabelError: a label cannot hold.
            InstantError: a label's instant is malformed.
        """

    def rewrite(
        self,
        pattern: TriplePattern,
        labelling: Labelling,
        fresh: Callable[[str], Variable],
        naming: Naming,
    ) -> Rewriting:
        """The pattern as it must be asked of data annotated by this method.

        Args:
            pattern: what the query asks.
            labelling: the kind of label that the data carry.
            fresh: makes a variable that occurs nowhere else, from a hint for its name.
            naming: vocabulary and IRIs (of the foreign server).
        """

    def match(self, pattern: QuadPattern, naming: Naming) -> Sequence[Part]:
        """Which labelled facts show quads that match `pattern`, and which quads.

        The parts are disjoint and in a fixed order, so that pages are stable.
        """


__all__ = ["Fact", "FactPattern", "Label", "Method", "Naming", "Part", "Rewriting"]
