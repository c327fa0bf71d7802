"""Data of annotation methods: names, patterns of facts, parts of shapes, rewritings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from annotations.errors import AnnotationError
from annotations.labels import Fact, Label, Labelling
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.terms import Quad, QuadPattern, Term, Variable

NAMED_GRAPHS = Term("*")
"""As the graph of a `FactPattern`: any graph but the default graph (the name of no term)."""


@dataclass(frozen=True, slots=True)
class Naming:
    """How annotated data are named: the vocabulary and the prefixes of minted IRIs.

    Args:
        fact_base: absolute IRI that minted names (singleton properties, graphs, reifiers, interval
            nodes) start with. They are functions of the fact and its label's identity (the start
            of an interval; nothing of an expiration), so that pages are stable.
        fragment_url: the URL of the dataset, from which `fragment_iri` makes the IRI of the
            fragment of one triple exactly as the form's template expands it.
    """

    fact_base: str
    fragment_url: str
    vocabulary: Vocabulary = field(default=DEFAULT_VOCABULARY)


class FactPattern(NamedTuple):
    """A pattern of labelled facts; ``None`` leaves a position open.

    `graph` is `DEFAULT_GRAPH` for the default graph alone and `NAMED_GRAPHS` for all others.
    `identity` is the token that ends the names minted for a fact (see
    `annotations.methods.names.identity`). `start` and `end` are those of the label. `repeats`: only
    facts with one term in two positions.
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
    """A variable whose value is computed of the quad that the first pattern of a rewriting matched.

    No pattern can express such a join: the client computes the value and binds it.
    """

    variable: Variable
    of: Callable[[Quad], Term]


class Rewriting(NamedTuple):
    """A triple pattern for data annotated by one method.

    Args:
        patterns: the quad patterns to match together; the first one matches the data. The
            variables of the original pattern keep their names. Graphs are variables (any graph,
            the default graph included); two patterns that share one must match in the same graph.
            The default graph has no name, so it joins with no subject or object.
        initial: variable bound to the start of the label (interval labelling), else ``None``.
        final: variable bound to the end of the label; the same as `initial` where facts hold at an
            instant only.
        graph: variable bound to the graph of the fact itself (not an annotation graph), or ``None``
            where the form does not state it.
        derived: a variable of the patterns to compute from the match of the first one, or ``None``.
    """

    patterns: tuple[QuadPattern, ...]
    initial: Variable | None
    final: Variable
    graph: Variable | None = None
    derived: Derived | None = None


LabelForm: TypeAlias = Labelling | Literal["instant", "older interval"]
"""How labels are written in data: an ``older interval`` has no node of its own, and an ``instant``
is both ends of one."""

OnError: TypeAlias = Callable[[AnnotationError], None]
"""Told of one problem; returns, and the rest is read."""


__all__ = [
    "NAMED_GRAPHS",
    "Derived",
    "Fact",
    "FactPattern",
    "Label",
    "LabelForm",
    "Naming",
    "OnError",
    "Part",
    "Rewriting",
]
