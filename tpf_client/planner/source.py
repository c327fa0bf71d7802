"""The planner's interface of sources of facts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from annotations.labels import Fact
from annotations.terms import (
    QuadPattern,
    Term,
    Variable,
    is_literal,
    is_variable,
)
from tpf_client.dataflow.changes import Solution
from tpf_client.fragments.form import Block
from tpf_client.planner.driver import Task
from tpf_client.planner.reading import Content, ReadRequest

# One request per subject in place of one for each of its properties.


@dataclass(slots=True)
class Star:
    """One request per subject in place of several patterns of it."""

    pattern: QuadPattern
    members: dict[QuadPattern, int | None]
    asked: dict[Solution, Block | None] = field(default_factory=dict)

    @property
    def worthwhile(self) -> bool:
        """True if it saves requests beside asking for one property."""
        return len(self.members) > 1 or bool(self.asked)

    def whole_cost(self) -> int | None:
        """Return the requests to read all members whole."""
        pages_read = [pages for pages in self.members.values() if pages is not None]
        return sum(pages_read) if len(pages_read) == len(self.members) else None


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate from a fragment's first page; ``None``: not stated.

    Args:
        pages: requests to read the rest.
        dynamic: labelled matches.
        block: the most keys per request.
        first: matches that all pages show alike, if there are further ones.
    """

    count: int | None
    pages: int | None
    dynamic: int | None
    block: int = 1
    first: Sequence[Fact] = field(default=(), compare=False, repr=False)


class Source(Protocol):
    """A source that answers quad patterns.

    A graph variable matches any graph, the default graph included; repeated variables are the
    caller's to check.
    """

    url: str

    def now(self) -> datetime:
        """The present instant on this source's clock."""

    def wake_at(self, instant: datetime) -> datetime:
        """Return our instant at which this source's clock has surely reached `instant`."""

    def begin(self) -> Task[object]:
        """Fetch once what the first estimates share."""

    def estimate(self, pattern: QuadPattern) -> Task[Estimate]:
        """Estimate the matches."""

    def read(self, asked: ReadRequest) -> Task[Content]:
        """Read matches."""


def impossible(pattern: QuadPattern) -> bool:
    """True if no RDF quad can match, as with a literal as subject."""
    subject, predicate, _, graph = pattern
    return (
        is_literal(subject)
        or subject.startswith("<<")
        or not (is_variable(predicate) or predicate.startswith("<"))
        or predicate.startswith("<<")
        or is_literal(graph)
        or graph.startswith("<<")
    )


def substitute(pattern: QuadPattern, binding: dict[Variable, Term]) -> QuadPattern:
    """Replace variables by values."""
    return QuadPattern(
        *(binding.get(Variable(term), term) if is_variable(term) else term for term in pattern)
    )
