"""Time labels and labelled facts.

A fact is valid at ``now`` iff ``start <= now < end``; an expiration has no start. Single instants
are intervals of a microsecond (`at_instant`).

Source: Taelman et al. 2016, sections 2.2 and 4.1; Gutierrez, Hurtado and Vaisman, *Introducing Time
into RDF*, 2007.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from annotations.errors import LabelError, OverlapError
from annotations.instants import FIRST, format_instant, shifted, utc
from annotations.terms import Quad

Labelling: TypeAlias = Literal["expiration", "interval"]
_RESOLUTION = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, order=True)
class Expiration:
    """The fact holds until `end`."""

    end: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "end", utc(self.end))

    @property
    def start(self) -> None:
        return None

    @property
    def labelling(self) -> Labelling:
        return "expiration"

    def valid_at(self, now: datetime) -> bool:
        """True while a fact with this label holds."""
        return now < self.end


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """The fact holds from `start` (inclusive) to `end` (exclusive).

    Raises:
        InstantError: an instant is naive.
        LabelError: the interval is empty or inverted.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", utc(self.start))
        object.__setattr__(self, "end", utc(self.end))
        if self.start >= self.end:
            raise LabelError(
                f"an interval must end after it starts: "
                f"{format_instant(self.start)} to {format_instant(self.end)}"
            )

    @property
    def labelling(self) -> Labelling:
        return "interval"

    def valid_at(self, now: datetime) -> bool:
        """True while a fact with this label holds."""
        return self.start <= now < self.end

    @property
    def instant(self) -> datetime | None:
        """The only instant at which the fact holds, if there is just one."""
        return self.start if self.end - self.start == _RESOLUTION else None


Label: TypeAlias = Expiration | Interval


def at_instant(instant: datetime) -> Interval:
    """Return the label of an instant."""
    return Interval(instant, shifted(utc(instant), _RESOLUTION))


class Fact(NamedTuple):
    """A quad with its label; no label: static."""

    quad: Quad
    label: Label | None = None

    def valid_at(self, now: datetime) -> bool:
        return self.label is None or self.label.valid_at(now)


FactKey: TypeAlias = Literal["subject-predicate", "triple"]
"""What makes two facts versions of the same fact, always within one graph."""


def key_of(quad: Quad, key: FactKey = "subject-predicate") -> tuple[str, ...]:
    """Return the part of a quad that all versions of one fact share."""
    if key == "triple":
        return (quad.subject, quad.predicate, quad.object, quad.graph)
    return (quad.subject, quad.predicate, quad.graph)


def overlaps(
    facts: Iterable[Fact], key: FactKey = "subject-predicate"
) -> Iterator[tuple[Fact, Fact]]:
    """Yield pairs of versions of one fact whose labels overlap; the first one stays."""
    by_key: dict[tuple[str, ...], dict[Fact, None]] = {}
    for fact in facts:
        if fact.label is not None:
            by_key.setdefault(key_of(fact.quad, key), {})[fact] = None
    for versions in by_key.values():
        if len(versions) > 1:
            yield from _overlapping_versions(versions)


def _overlapping_versions(versions: Iterable[Fact]) -> Iterator[tuple[Fact, Fact]]:
    kept: Fact | None = None
    for fact in sorted(versions, key=_start):
        if kept is None or _start(fact) >= _end(kept):
            kept = fact
        else:
            yield kept, fact


def _start(fact: Fact) -> datetime:
    start = fact.label.start if fact.label is not None else None
    return start if start is not None else FIRST


def _end(fact: Fact) -> datetime:
    assert fact.label is not None
    return fact.label.end


def overlap_error(earlier: Fact, later: Fact) -> OverlapError:
    """Return the error that names two overlapping versions."""
    return OverlapError(f"two labels of one fact overlap: {_show(earlier)} and {_show(later)}")


def check_no_overlap(facts: Iterable[Fact], key: FactKey = "subject-predicate") -> None:
    """Raise an `OverlapError` for overlapping labels of one fact (see `overlaps`)."""
    for earlier, later in overlaps(facts, key):
        raise overlap_error(earlier, later)


def _show(fact: Fact) -> str:
    label = fact.label
    assert label is not None
    quad = " ".join(term for term in fact.quad if term)
    since = f"from {format_instant(label.start)} " if label.start else ""
    return f"{quad} ({since}until {format_instant(label.end)})"
