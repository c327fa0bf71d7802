"""Data of annotation methods: names, patterns of facts, parts of shapes, rewritings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from annotations.errors import AnnotationError
from annotations.labels import Fact, Labelling
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.terms import Quad, QuadPattern, Term, Variable

NAMED_GRAPHS = Term("*")
"""As the graph of a `FactPattern`: any graph but the default graph (the name of no term)."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The vocabulary and the names of annotated data.

    `fact_base` is the prefix of minted IRIs, `fragment_url` the dataset of implicit graphs.
    """

    fact_base: str
    fragment_url: str
    vocabulary: Vocabulary = field(default=DEFAULT_VOCABULARY)


class FactPattern(NamedTuple):
    """A pattern of labelled facts; ``None`` leaves a position open.

    `identity` is the token of minted names; `repeats`: only facts with one term in two positions.
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
    """One quad of a method's shape that a pattern can match."""

    facts: FactPattern
    render: Callable[[Fact], Quad]
    residual: Callable[[Fact], bool] | None = None


class Derived(NamedTuple):
    """A variable computed from the match of a rewriting's first pattern."""

    variable: Variable
    of: Callable[[Quad], Term]


class Rewriting(NamedTuple):
    """A triple pattern for data annotated by one method.

    `patterns` match together; the first one matches the data. `initial` and `final` are the
    variables of the label, `derived` one computed from the first match. `link` gives the `graph`
    of matches that have one; the others are in the default graph.
    """

    patterns: tuple[QuadPattern, ...]
    initial: Variable | None
    final: Variable
    graph: Variable | None = None
    derived: Derived | None = None
    link: QuadPattern | None = None


LabelForm: TypeAlias = Labelling | Literal["instant", "older interval"]
"""How labels are written in data: an ``older interval`` has no node of its own, and an ``instant``
is both ends of one."""


class RewriteOptions(NamedTuple):
    """How a pattern is rewritten: for labels of a form, with new variables, in some naming."""

    labelling: LabelForm
    fresh: Callable[[str], Variable]
    naming: Naming


OnError: TypeAlias = Callable[[AnnotationError], None]
"""Told of one problem; returns, and the rest is read."""
