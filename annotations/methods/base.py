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
    """The vocabulary and the names of annotated data.

    Args:
        fact_base: prefix of minted IRIs, which depend only on the fact and its label's identity, so
            that pages are stable.
        fragment_url: the dataset, for IRIs of fragments as the form expands them.
    """

    fact_base: str
    fragment_url: str
    vocabulary: Vocabulary = field(default=DEFAULT_VOCABULARY)


class FactPattern(NamedTuple):
    """A pattern of labelled facts; ``None`` leaves a position open.

    `graph` is `DEFAULT_GRAPH`, `NAMED_GRAPHS` (all others) or a term. `identity` is the token of
    minted names (see `annotations.methods.names.identity`). `repeats`: only facts with one term in
    two positions.
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

    Every fact that matches `facts` and `residual` shows exactly one quad, ``render(fact)``, and
    different facts show different quads; so counts are equal.
    """

    facts: FactPattern
    render: Callable[[Fact], Quad]
    residual: Callable[[Fact], bool] | None = None


class Derived(NamedTuple):
    """A variable computed from the match of a rewriting's first pattern.

    No pattern can express such a join.
    """

    variable: Variable
    of: Callable[[Quad], Term]


class Rewriting(NamedTuple):
    """A triple pattern for data annotated by one method.

    Args:
        patterns: match together; the first one matches the data. The original variables keep their
            names. Graph variables include the default graph, which joins with no subject or object.
        initial: variable of the label's start (intervals only).
        final: variable of the label's end; the same as `initial` for single instants.
        graph: variable of the fact's own graph, if the form states it.
        derived: a variable computed from the match of the first pattern, if any.
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
