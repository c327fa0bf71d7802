"""A naive live store: the list of all publications, with answers by brute force."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from annotations.labels import Expiration, Fact, FactKey, Interval, check_no_overlap, key_of
from annotations.methods.base import NAMED_GRAPHS, FactPattern
from annotations.methods.names import identity
from annotations.terms import DEFAULT_GRAPH


class RefusedError(Exception):
    """The model refuses a batch."""


@dataclass(frozen=True)
class Life:
    """A fact, and the states in which it exists."""

    fact: Fact
    added: int
    removed: int | None = None


class LiveModel:
    """The expected answers of a live store, written for clarity."""

    def __init__(self, key: FactKey, accept_past: bool = False) -> None:
        self.key = key
        self.accept_past = accept_past
        self.sequence = 0
        self.lives: list[Life] = []
        self.published: list[datetime] = []

    def publish(self, facts: Sequence[Fact], now: datetime, withdrawn: Sequence[Fact] = ()) -> None:
        backup = list(self.lives)
        self._left: list[Life] = []
        try:
            for fact in withdrawn:
                self._withdraw(fact, now)
            self._publish(facts, now)
        except (RefusedError, ValueError):
            self.lives = backup
            raise
        self.sequence += 1
        self.published.append(now)

    def _publish(self, facts: Sequence[Fact], now: datetime) -> None:
        check_no_overlap(facts, self.key)
        for fact in facts:
            past = isinstance(fact.label, Interval) and self.accept_past
            if fact.label is None or (fact.label.end <= now and not past):
                raise RefusedError
        for fact in sorted(set(facts), key=_begins):
            self._add(fact, now)

    def _withdraw(self, fact: Fact, now: datetime) -> None:
        """Withdraw second by second: timelines have no smaller steps."""
        label = fact.label if isinstance(fact.label, Interval) else None
        for life in [life for life in self.lives if life.removed is None]:
            old = life.fact.label
            assert old is not None
            if life.fact.quad != fact.quad:
                continue
            start = now if isinstance(old, Expiration) else old.start
            length = int((old.end - start).total_seconds())
            seconds = [start + timedelta(seconds=n) for n in range(length)]
            if label is not None:
                kept = [not label.valid_at(second) for second in seconds]
            else:
                kept = [second < now for second in seconds]
            if all(kept):
                continue
            self._end(life, None)
            runs = [list(run) for _, run in groupby(range(length), key=kept.__getitem__)]
            for run in runs:
                since, until = seconds[run[0]], seconds[run[-1]] + timedelta(seconds=1)
                if not kept[run[0]] or (isinstance(old, Expiration) and run[0] > 0):
                    continue
                left = Expiration(until) if isinstance(old, Expiration) else Interval(since, until)
                self._left.append(Life(Fact(fact.quad, left), self.sequence + 1))
                self.lives.append(self._left[-1])

    def _add(self, fact: Fact, now: datetime) -> None:
        label = fact.label
        assert label is not None
        new = self.sequence + 1
        since = label.start if isinstance(label, Interval) else now
        rivals = [
            life
            for life in self.lives
            if life.removed is None
            and (life.added != new or life in self._left)
            and key_of(life.fact.quad, self.key) == key_of(fact.quad, self.key)
        ]
        for life in rivals:
            if life.fact == fact:
                return
        for life in rivals:
            old = life.fact.label
            if isinstance(old, Interval) and since < old.start < label.end:
                raise RefusedError
        for life in rivals:
            old = life.fact.label
            if isinstance(old, Interval):
                if old.start == since:
                    self._end(life, None)
                elif old.start < since < old.end:
                    self._end(life, Interval(old.start, since))
            elif isinstance(old, Expiration):
                if isinstance(label, Expiration) or (old.end > since and since <= now):
                    self._end(life, None)
                elif old.end > since:
                    self._end(life, Expiration(since))
        self.lives.append(Life(fact, new))

    def _end(self, life: Life, shorter: Expiration | Interval | None) -> None:
        self.lives.remove(life)
        self.lives.append(replace(life, removed=self.sequence + 1))
        if shorter is not None:
            self.lives.append(Life(Fact(life.fact.quad, shorter), self.sequence + 1))

    def existing(self, pattern: FactPattern, sequence: int) -> list[Fact]:
        """Return the matching facts of a state, valid or not."""
        return [
            life.fact
            for life in self.lives
            if life.added <= sequence
            and (life.removed is None or sequence < life.removed)
            and matches(life.fact, pattern)
        ]

    def history(
        self, pattern: FactPattern, instant: datetime, sequence: int, since: int = 0
    ) -> list[Fact]:
        """Return the matching facts with when they held, if they began by then.

        `since`: only those that were added by this batch or a later one.
        """
        results = []
        for life in self.lives:
            label = life.fact.label
            assert label is not None
            if not since <= life.added <= sequence or not matches(life.fact, pattern):
                continue
            gone = life.removed is not None and life.removed <= sequence
            start, end = label.start, label.end
            if start is None:
                start = self.published[life.added - 1]
                if gone:
                    end = min(end, self.published[(life.removed or 0) - 1])
            elif gone:
                continue
            if start <= instant and start < end:
                results.append(Fact(life.fact.quad, Interval(start, end)))
        return results

    def facts(self, pattern: FactPattern, instant: datetime, sequence: int) -> list[Fact]:
        return [fact for fact in self.existing(pattern, sequence) if fact.valid_at(instant)]

    def earliest_end(
        self, pattern: FactPattern, instant: datetime, sequence: int
    ) -> datetime | None:
        facts = self.facts(pattern, instant, sequence)
        return min((fact.label.end for fact in facts if fact.label), default=None)

    def next_change(
        self, pattern: FactPattern, instant: datetime, sequence: int
    ) -> datetime | None:
        changes = []
        for fact in self.existing(pattern, sequence):
            label = fact.label
            assert label is not None
            changes += [at for at in (label.start, label.end) if at is not None]
            if not label.valid_at(instant):
                changes.pop()
        return min((change for change in changes if change > instant), default=None)


def _begins(fact: Fact) -> float:
    return fact.label.start.timestamp() if isinstance(fact.label, Interval) else float("-inf")


def matches(fact: Fact, pattern: FactPattern) -> bool:
    """Match a labelled fact position by position."""
    *terms, graph = fact.quad
    label = fact.label
    if pattern.graph == NAMED_GRAPHS:
        in_graph = graph != DEFAULT_GRAPH
    else:
        in_graph = pattern.graph in (None, graph)
    return bool(
        in_graph
        and label is not None
        and all(want in (None, have) for want, have in zip(pattern[:3], terms, strict=True))
        and pattern.identity in (None, identity(fact))
        and not (pattern.repeats and len(set(fact.quad)) == len(fact.quad))
        and pattern.labelling in (None, label.labelling)
        and pattern.start in (None, label.start)
        and pattern.end in (None, label.end)
    )
