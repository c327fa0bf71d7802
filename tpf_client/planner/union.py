"""The union of several sources."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from annotations.instants import LAST, shifted
from annotations.labels import Fact
from annotations.terms import Quad, QuadPattern, is_variable
from tpf_client.planner.driver import Task
from tpf_client.planner.reading import Content, ReadRequest, together
from tpf_client.planner.source import Estimate, Source

_MAX_PASSES = 3


class UnionSource:
    """The quads of all these sources, each once, with its last end; a `Source` for one query.

    A source without a match is not asked for narrower patterns; unless `once`, the first page tells
    each time whether it still has none. Instants are on the first one's clock.
    """

    def __init__(self, sources: Sequence[Source], *, once: bool = False) -> None:
        self.url = sources[0].url
        self._sources = tuple(sources)
        self._once = once
        self._empty: dict[Source, set[QuadPattern]] = {source: set() for source in sources}

    def now(self) -> datetime:
        return self._sources[0].now()

    def wake_at(self, instant: datetime) -> datetime:
        """Return our instant at which every source's clock has surely reached `instant`."""
        ours = self._sources[0]
        return max(
            source.wake_at(shifted(instant, ahead(source, ours))) for source in self._sources
        )

    def begin(self) -> Task[object]:
        return together([source.begin() for source in self._sources])

    def estimate(self, pattern: QuadPattern) -> Task[Estimate]:
        sources = self._asked(pattern)
        estimates = yield from together([source.estimate(pattern) for source in sources])
        for source, each in zip(sources, estimates, strict=True):
            if each.count == 0:
                self._empty[source].add(pattern)
        if not estimates:
            return Estimate(0, 0, 0)
        return Estimate(
            _total([each.count for each in estimates]),
            _total([each.pages for each in estimates]),
            _total([each.dynamic for each in estimates]),
            min(each.block for each in estimates),
        )

    def read(self, asked: ReadRequest) -> Task[Content]:
        """Read all matches, or the first pages; duplicates come once."""
        ours = self._sources[0]
        sources = (self._asked(asked.pattern) or [ours]) if self._once else self._sources
        for _ in range(_MAX_PASSES):
            shifts = [ahead(source, ours) for source in sources]
            contents = yield from together(
                [
                    self._read(
                        source,
                        asked if asked.at is None else replace(asked, at=shifted(asked.at, shift)),
                    )
                    for source, shift in zip(sources, shifts, strict=True)
                ]
            )
            aligned = [
                _shifted(content, source, ours)
                for content, source in zip(contents, sources, strict=True)
            ]
            at = max(content.evaluated_at for content in aligned)
            if self._once or not any(_changes_by(at, content) for content in aligned):
                break
            # What was read first has changed since.
            asked = replace(asked, at=at)
        facts: dict[Quad, Fact] = {}
        for fact in (fact for content in aligned for fact in content.facts):
            other = facts.setdefault(fact.quad, fact)
            if _end(other) < _end(fact):
                facts[fact.quad] = fact
        expiries = [content.expires for content in aligned if content.expires is not None]
        changes = [content.changes for content in aligned if content.changes is not None]
        return Content(
            list(facts.values()),
            at,
            min(content.fresh_until for content in aligned),
            min(expiries, default=None),
            min(changes, default=None),
            _any([content.dynamic for content in aligned]),
            tuple(warning for content in aligned for warning in content.warnings),
            max(content.pages for content in aligned),
            all(content.complete for content in aligned),
            any(content.cached for content in aligned),
        )

    def _read(self, source: Source, asked: ReadRequest) -> Task[Content]:
        wider = self._without_match(source, asked.pattern)
        if wider is not None and not self._once:
            first_page = ReadRequest(wider, asked.at, anew=asked.anew, more=lambda _: False)
            content = yield from source.read(first_page)
            if content.complete and not content.facts:
                return content
            self._empty[source].discard(wider)
        return (yield from source.read(asked))

    def _without_match(self, source: Source, pattern: QuadPattern) -> QuadPattern | None:
        return next((each for each in self._empty[source] if _covers(each, pattern)), None)

    def _asked(self, pattern: QuadPattern) -> list[Source]:
        return [each for each in self._sources if self._without_match(each, pattern) is None]


def ahead(source: Source, ours: Source) -> timedelta:
    """Return how far the clock of a source is ahead of ours; one clock goes on meanwhile."""
    before, now, after = ours.now(), source.now(), ours.now()
    return timedelta(0) if before <= now <= after else now - after


def _covers(wider: QuadPattern, pattern: QuadPattern) -> bool:
    return all(is_variable(one) or one == other for one, other in zip(wider, pattern, strict=True))


def _end(fact: Fact) -> datetime:
    return LAST if fact.label is None else fact.label.end


def _changes_by(instant: datetime, content: Content) -> bool:
    return content.changes is not None and content.evaluated_at < content.changes <= instant


def _total(numbers: Sequence[int | None]) -> int | None:
    numbers_known = [number for number in numbers if number is not None]
    return sum(numbers_known) if len(numbers_known) == len(numbers) else None


def _any(each: Sequence[bool | None]) -> bool | None:
    return True if True in each else None if None in each else False


def _shifted(content: Content, source: Source, ours: Source) -> Content:
    shift = -ahead(source, ours)
    if not shift:
        return content
    return replace(
        content,
        evaluated_at=shifted(content.evaluated_at, shift),
        fresh_until=shifted(content.fresh_until, shift),
        expires=None if content.expires is None else shifted(content.expires, shift),
        changes=None if content.changes is None else shifted(content.changes, shift),
    )
