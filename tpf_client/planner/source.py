"""Sources of facts: what the planner needs to know of them."""

from collections.abc import Callable, Sequence
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
from tpf_client.planner.reading import Content

# One request per subject in place of one for each of its properties.


@dataclass(slots=True)
class Star:
    """What is asked per subject in place of several patterns of the same subject.

    Args:
        pattern: the pattern that is asked: any property of the subject.
        members: the patterns that it can stand for, with the requests that each takes when it is
            read whole; ``None``: unknown. Those that were answered otherwise are taken out.
    """

    pattern: QuadPattern
    members: dict[QuadPattern, int | None]
    asked: dict[Solution, Block | None] = field(default_factory=dict)

    @property
    def worthwhile(self) -> bool:
        """Whether it spares requests beside asking for one property."""
        return len(self.members) > 1 or bool(self.asked)

    def whole_cost(self) -> int | None:
        """How many requests it takes to read all members whole."""
        known = [pages for pages in self.members.values() if pages is not None]
        return sum(known) if len(known) == len(self.members) else None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the first page of a fragment tells of all of it.

    Args:
        count: matches; ``None``: unknown, which is never taken for few.
        pages: requests that reading it whole takes beyond the first page; ``None``: unknown.
        dynamic: how many matches are labelled facts; ``None``: nobody says.
        block: how many keys one request can be restricted to; 1: one by one.
        first: those matches on the first page that further pages show alike, where there are
            others.
    """

    count: int | None
    pages: int | None
    dynamic: int | None
    block: int = 1
    first: Sequence[Fact] = field(default=(), compare=False, repr=False)


class Source(Protocol):
    """Who answers quad patterns.

    A variable in the graph position matches any graph, the default graph included; repeated
    variables are the caller's to check.
    """

    url: str

    def now(self) -> datetime:
        """The present instant on this source's clock."""

    def wake_at(self, instant: datetime) -> datetime:
        """The instant of our clock at which this source's has surely reached `instant`."""

    def begin(self) -> Task[object]:
        """Learn what the first estimates need, so that they do not all ask for it."""

    def estimate(self, pattern: QuadPattern) -> Task[Estimate]:
        """How much there is."""

    def read(
        self,
        pattern: QuadPattern,
        at: datetime | None = None,
        on_page: Callable[[Sequence[Fact]], None] | None = None,
        block: Block | None = None,
        *,
        anew: bool = False,
        more: Callable[[int], bool] | None = None,
    ) -> Task[Content]:
        """All matches, or those on the first pages.

        Args:
            pattern: what to match.
            at: the instant at which they must hold, on this source's clock; ``None``: now.
            on_page: told of matches as they come.
            block: bindings one of which each match must fit, where the estimate offers that. The
                pattern's variables are then those of `PATTERN_VARIABLES`.
            anew: whether the server shall be asked although HTTP calls fresh what is kept.
            more: whether to read on after so many pages, for sources that can stop; ``None``: all
                are read.
        """


def impossible(pattern: QuadPattern) -> bool:
    """Whether no RDF quad can match: a literal as subject, predicate or graph, and the like."""
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
    """The pattern with values in place of variables."""
    return QuadPattern(
        *(binding.get(Variable(term), term) if is_variable(term) else term for term in pattern)
    )
