"""What an annotation method is: one fact, four directions.

Every method encodes a fact as quads, decodes quads to facts, rewrites a triple pattern for
clients that read annotated data of others, and tells a server which labelled facts answer a
quad pattern over the annotated data, so that the annotated quads need not exist anywhere.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, TypeAlias

from annotations.errors import AnnotationError
from annotations.labels import Fact, FactKey, Label, Labelling
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.terms import Quad, QuadPattern, Term, TriplePattern, Variable

NAMED_GRAPHS = Term("*")
"""As the graph of a `FactPattern`: any graph but the default graph (the name of no term)."""


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

    `graph` is `DEFAULT_GRAPH` for the default graph alone and `NAMED_GRAPHS` for all others.
    `identity` is the token that ends the names minted for a fact (see
    `annotations.methods.names.identity`). `start` and `end` are those of the label. `repeats`: only
    facts that hold one term in two positions, whichever these are.
    """

    subject: Term | None = None
    predicate: Term | None = None
    object: Term | None = None
    graph: Term | None = None
    identity: str | None = None
    labelling: Labelling | None = None
    start: datetime | None = None
    end: datetime | None = None
    repeats: bool = False


class Part(NamedTuple):
    """One quad of a method's shape that a pattern can match.

    Every fact that matches `facts` and passes `residual` (``None``: all pass) shows exactly one
    quad of this part, ``render(fact)``, and different facts show different quads; so the count of
    facts is the count of quads.
    """

    facts: FactPattern
    render: Callable[[Fact], Quad]
    residual: Callable[[Fact], bool] | None = None


class Derived(NamedTuple):
    """A variable whose value follows from the quad that the first pattern of a rewriting matched.

    No pattern can express such a join: the client computes the value, binds it, and goes on.
    """

    variable: Variable
    of: Callable[[Quad], Term]


class Rewriting(NamedTuple):
    """A triple pattern as it must be asked of data annotated by one method.

    Args:
        patterns: the quad patterns to match together; the first one matches the data. The
            variables of the original pattern keep their names. Graphs are variables (any graph,
            the default graph included); two patterns that share one must match in the same graph,
            the default graph being a graph like any other; but it has no name, so it joins with no
            subject or object.
        initial: variable bound to the start of the label (interval labelling), else ``None``.
        final: variable bound to the end of the label.
        graph: variable bound to the graph of the fact itself (not an annotation graph), or ``None``
            where the form does not tell it.
        derived: a variable of the patterns to compute from the match of the first one, or ``None``.
    """

    patterns: tuple[QuadPattern, ...]
    initial: Variable | None
    final: Variable
    graph: Variable | None = None
    derived: Derived | None = None


LabelForm: TypeAlias = Labelling | Literal["older interval"]
"""How labels are written in data: an ``older interval`` has no node of its own."""

OnError: TypeAlias = Callable[[AnnotationError], None]
"""Told of one problem; returns, and the rest is read."""


class Method(Protocol):
    """An annotation method. Implementations are stateless and listed in `METHODS`."""

    name: str
    """Name in settings and URLs: ``named-graph``."""

    def encode(self, fact: Fact, naming: Naming) -> list[Quad]:
        """The quads that say this fact; a fact without a label is its own quad.

        Raises:
            EncodeError: the fact would itself be read as an annotation.
        """

    def decode(
        self,
        quads: Iterable[Quad],
        naming: Naming,
        *,
        key: FactKey = "subject-predicate",
        on_error: OnError | None = None,
    ) -> list[Fact]:
        """The facts that these quads say, in the order of their quads; unlabelled ones included.

        Repeated quads count once. A fact whose label cannot be read is left out, because without
        the label it would hold for ever; of labels that overlap the earliest is kept.

        Args:
            quads: annotated data.
            naming: vocabulary and IRIs.
            key: what makes two facts versions of one fact, whose labels must not overlap.
            on_error: called once per problem, of the classes below, and the rest is read; without
                it the first problem is raised.

        Raises:
            DecodeError: an annotation is incomplete, contradicts itself or labels no fact.
            LabelError: a label cannot hold, or two labels of one fact overlap.
            InstantError: a label's instant is malformed or has no time zone.
        """

    def rewrite(
        self,
        pattern: TriplePattern,
        labelling: LabelForm,
        fresh: Callable[[str], Variable],
        naming: Naming,
    ) -> Rewriting:
        """The pattern as it must be asked of data annotated by this method.

        It matches labelled facts only, one solution per fact and label. A variable as predicate
        stands for the predicate of the fact: the triples that make up annotations carry no label
        themselves, so the join with the label keeps them out.

        Args:
            pattern: what the query asks.
            labelling: the kind of label that the data carry, and how it is written.
            fresh: makes a variable that occurs nowhere else, from a hint for its name.
            naming: vocabulary and IRIs (of the foreign server).
        """

    def match(self, pattern: QuadPattern, naming: Naming) -> Sequence[Part]:
        """Which labelled facts show quads that match `pattern`, and which quads.

        The parts are disjoint and in a fixed order, so that pages are stable.
        """


__all__ = [
    "NAMED_GRAPHS",
    "Derived",
    "Fact",
    "FactPattern",
    "Label",
    "LabelForm",
    "Method",
    "Naming",
    "OnError",
    "Part",
    "Rewriting",
]
