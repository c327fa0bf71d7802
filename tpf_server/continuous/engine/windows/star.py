"""What a window holds of a star: rows, and how they come and go with the elements.

Usually one element carries the whole star of a subject, and no other element in the window has
anything of that subject. Such a row stands for itself. Only where several elements add to the
same subject, or an element carries a part of the star, the objects are kept pattern by pattern, and
a row is there once for each combination of them (elements are a bag, so equal triples of two
elements count twice).
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from tpf_client.dataflow.changes import Sink, Solution, TermId
from tpf_server.continuous.engine.windows.matchers import StarMatcher

Parts = list[list[Any]]
Brought = Parts | Solution


class _Mixed:
    """The objects of one subject, pattern by pattern, with counts."""

    __slots__ = ("objects",)

    def __init__(self, patterns: int) -> None:
        self.objects: list[dict[Any, int]] = [{} for _ in range(patterns)]


class StarContent:
    """The rows of a star in a window.

    Args:
        matcher: the patterns.
        emit: is told of each row that comes (1) or goes (-1), or of several copies.

    Attributes:
        live: by subject: the row of the only element that has anything of it, or all that several
            elements have. A window may put in and take out rows of the first kind itself.
    """

    def __init__(self, matcher: StarMatcher, emit: Sink) -> None:
        self._matcher = matcher
        self._emit = emit
        self.live: dict[TermId, Solution | _Mixed] = {}

    def __len__(self) -> int:
        return len(self.live)

    def insert(self, subject: TermId, brought: Brought) -> None:
        """What one element brings of `subject`: objects pattern by pattern, or a whole row."""
        content = self.live.get(subject)
        if content is None:
            row = self._single(subject, brought) if isinstance(brought, list) else brought
            if row is not None:
                self.live[subject] = row
                self._emit(row, 1)
                return
            content = self.live[subject] = _Mixed(len(brought))
        elif isinstance(content, tuple):
            mixed = _Mixed(len(self._matcher.predicates))
            for objects, (value,) in zip(mixed.objects, self._parts(content), strict=True):
                objects[value] = 1
            content = self.live[subject] = mixed
        self._change(subject, content, self._parts(brought), 1)

    def expire(self, subject: TermId, brought: Brought) -> None:
        """That goes again."""
        content = self.live[subject]
        if isinstance(content, tuple):
            del self.live[subject]
            self._emit(content, -1)
            return
        self._change(subject, content, self._parts(brought), -1)
        if not any(content.objects):
            del self.live[subject]

    def rows(self) -> Iterator[tuple[Solution, int]]:
        """The rows that are there now, with their counts."""
        for subject, content in self.live.items():
            if isinstance(content, tuple):
                yield content, 1
                continue
            for value, times in content.objects[0].items():
                for row, count in self._rows(subject, content, 0, value):
                    yield row, times * count

    def _parts(self, brought: Brought) -> Parts:
        """Objects pattern by pattern."""
        return brought if isinstance(brought, list) else self._matcher.parts(brought)

    def _single(self, subject: TermId, parts: Parts) -> Solution | None:
        if any(len(values) != 1 for values in parts):
            return None
        return self._matcher.row(subject, [values[0] for values in parts])

    def _change(self, subject: TermId, content: _Mixed, parts: Parts, sign: int) -> None:
        for pattern, values in enumerate(parts):
            own = content.objects[pattern]
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
        """The rows in which `value` is the object of `pattern`."""
        choices = [
            [(value, 1)] if place == pattern else list(objects.items())
            for place, objects in enumerate(content.objects)
        ]
        for choice in product(*choices):
            row = self._matcher.row(subject, [each for each, _ in choice])
            if row is not None:
                count = 1
                for _, times in choice:
                    count *= times
                yield row, count
