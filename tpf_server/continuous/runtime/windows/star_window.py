"""Triple patterns that make a star, over a window of a stream."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from tpf_client.dataflow.changes import Sink, Solution, TermId
from tpf_server.continuous.runtime.windows.matchers import (
    EncodedTriple,
    StarMatcher,
)
from tpf_server.continuous.runtime.windows.window_input import WindowInput

# What a window holds of a star: rows, and how they come and go with the elements.
#
# Usually one element carries the whole star of a subject, and no other element in the window has
# anything of that subject. Such a row stands for itself. Only where several elements add to the
# same subject, or an element carries a part of the star, the objects are kept pattern by pattern,
# and a row is there once for each combination of them (elements are a bag, so equal triples of two
# elements count twice).

Parts = list[list[Any]]
Brought = Parts | Solution
_Mixed = list[dict[Any, int]]
"""The objects of one subject, pattern by pattern, with counts."""


class StarContent:
    """The rows of a star in a window.

    Args:
        emit: gets each row that comes (1) or goes (-1), or several copies.
    """

    def __init__(self, matcher: StarMatcher, emit: Sink) -> None:
        self._matcher = matcher
        self._emit = emit
        # By subject: the row of its only element, or the objects of several elements.
        self._live: dict[TermId, Solution | _Mixed] = {}

    def insert(self, subject: TermId, brought: Brought) -> None:
        """Insert the part of an element about `subject`: objects by pattern, or a whole row."""
        content = self._live.get(subject)
        if content is None:
            row = self._single(subject, brought) if isinstance(brought, list) else brought
            if row is not None:
                self._live[subject] = row
                self._emit(row, 1)
                return
            nothing: _Mixed = [{} for _ in brought]
            content = self._live[subject] = nothing
        elif isinstance(content, tuple):
            content = self._live[subject] = [{value: 1} for (value,) in self._parts(content)]
        self._change(subject, content, self._parts(brought), 1)

    def expire(self, subject: TermId, brought: Brought) -> None:
        content = self._live[subject]
        if isinstance(content, tuple):
            del self._live[subject]
            self._emit(content, -1)
            return
        self._change(subject, content, self._parts(brought), -1)
        if not any(content):
            del self._live[subject]

    def rows(self) -> Iterator[tuple[Solution, int]]:
        for subject, content in self._live.items():
            if isinstance(content, tuple):
                yield content, 1
                continue
            for value, times in content[0].items():
                for row, count in self._rows(subject, content, 0, value):
                    yield row, times * count

    def _parts(self, brought: Brought) -> Parts:
        return brought if isinstance(brought, list) else self._matcher.parts(brought)

    def _single(self, subject: TermId, parts: Parts) -> Solution | None:
        if any(len(values) != 1 for values in parts):
            return None
        return self._matcher.row(subject, [values[0] for values in parts])

    def _change(self, subject: TermId, content: _Mixed, parts: Parts, sign: int) -> None:
        for pattern, values in enumerate(parts):
            own = content[pattern]
            for value in values:
                total = own.get(value, 0) + sign
                if total:
                    own[value] = total
                else:
                    del own[value]
                for row, count in self._rows(subject, content, pattern, value):
                    self._emit(row, sign * count)

    def _rows(
        self, subject: TermId, content: _Mixed, pattern: int, value: Any
    ) -> Iterator[tuple[Solution, int]]:
        choices = [
            [(value, 1)] if position == pattern else list(objects.items())
            for position, objects in enumerate(content)
        ]
        for choice in product(*choices):
            row = self._matcher.row(subject, [each for each, _ in choice])
            if row is not None:
                count = 1
                for _, times in choice:
                    count *= times
                yield row, count


class StarWindow(WindowInput):
    """Rows of a star in a window; for the arguments see `WindowInput`.

    Entries of the log are a time, a subject, and the row or the objects of an element.
    """

    matcher: StarMatcher

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._star = StarContent(self.matcher, self._changed)
        self.arrive_star = self._arrive_star
        self.expire = self._hide

    @property
    def multiplies(self) -> bool:
        return not self.keeps_log

    def arrive(self, at: int, triples: Sequence[EncodedTriple]) -> None:
        watermark = self.watermark
        self.used = 1 if watermark is None else watermark.last
        subject = triples[0][0]
        parts = self.matcher.values(subject, triples)
        if any(parts):
            self._enter((at, subject, parts))

    def _present(self) -> Iterable[tuple[Solution, int]]:
        return self._star.rows()

    def _come(self, entry: tuple[Any, ...]) -> None:
        self._star.insert(*entry[1:])

    def _go(self, entry: tuple[Any, ...]) -> None:
        self._star.expire(*entry[1:])

    def _arrive_star(self, at: int, subject: TermId, row: Solution) -> None:
        if self.watermark is None:
            self.used = 1
        else:
            self.used = self.watermark.last
            row = (*row, self.used)
        self._enter((at, subject, row))
