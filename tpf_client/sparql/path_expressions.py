"""What stands between the ends of a property path: values, hashable and comparable.

Source: SPARQL 1.1 Query Language, section 18.1.7.
"""

from dataclasses import dataclass
from typing import TypeAlias

from annotations.terms import Term


@dataclass(frozen=True, slots=True)
class Link:
    """One step along a predicate."""

    predicate: Term


@dataclass(frozen=True, slots=True)
class Inverse:
    """A path walked backwards."""

    path: "PathExpression"


@dataclass(frozen=True, slots=True)
class Sequence:
    """One path after the other."""

    left: "PathExpression"
    right: "PathExpression"


@dataclass(frozen=True, slots=True)
class Alternative:
    """One path or the other."""

    left: "PathExpression"
    right: "PathExpression"


@dataclass(frozen=True, slots=True)
class Repeat:
    """``path*`` (0, many), ``path+`` (1, many) and ``path?`` (0, once): distinct pairs of ends."""

    path: "PathExpression"
    at_least_once: bool
    many: bool


@dataclass(frozen=True, slots=True)
class NegatedSet:
    """``!(p|^q)``: one step along any predicate but these."""

    forward: tuple[Term, ...]
    backward: tuple[Term, ...]


PathExpression: TypeAlias = Link | Inverse | Sequence | Alternative | Repeat | NegatedSet
