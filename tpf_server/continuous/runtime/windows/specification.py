"""The specifications of windows.

At instant t, in milliseconds, a window holds the elements with a timestamp t' <= t and:

========================  ======================================================================
``NOW``                   t' = t
``ALL``                   every t'
``RANGE d``               t' >= t - d
``RANGE d SLIDE s``       as ``RANGE d`` at the last multiple of s that is not after t
``TRIPLES n``             the n triples that came last, whatever their timestamps
========================  ======================================================================

Source: paper 000 (CQELS, 2011), sections 3.2 and 4.1. A slide is anchored at the epoch, so that all
windows with the same slide move together.
"""

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

# Units of time, the same in all languages of continuous queries.

_NANOSECONDS: Final = {
    1: ("ns", "nanosecond"),
    1_000_000: ("ms", "millisecond", "milli"),
    1_000_000_000: ("s", "sec", "second"),
    60_000_000_000: ("m", "min", "minute"),
    3_600_000_000_000: ("h", "hour"),
    86_400_000_000_000: ("d", "day"),
}
_SHORTEST_PLURAL: Final = 4
"""Letters: `secs`, but not `ss`."""
_LENGTHS: Final = {name: length for length, names in _NANOSECONDS.items() for name in names}


def nanoseconds_of(unit: str) -> int | None:
    """Return the length of a unit, by its name in the singular or the plural, or ``None``."""
    name = unit.lower()
    if len(name) >= _SHORTEST_PLURAL:
        name = name.removesuffix("s")
    return _LENGTHS.get(name)


@dataclass(frozen=True, slots=True)
class Now:
    """The elements of this very instant."""

    def __str__(self) -> str:
        return "NOW"


@dataclass(frozen=True, slots=True)
class All:
    """Everything since the query was registered."""

    def __str__(self) -> str:
        return "ALL"


@dataclass(frozen=True, slots=True)
class Range:
    """The last `width` milliseconds; where `slide` is given, as of its last multiple."""

    width: int
    slide: int | None = None

    def __str__(self) -> str:
        slide = "" if self.slide is None else f" SLIDE {self.slide}ms"
        return f"RANGE {self.width}ms{slide}"


@dataclass(frozen=True, slots=True)
class Triples:
    """The last `count` triples."""

    count: int

    def __str__(self) -> str:
        return f"TRIPLES {self.count}"


Window: TypeAlias = Now | All | Range | Triples

_DIGITS = 18
_WORD = re.compile(r"[A-Za-z]+|\d+|\S")


class WindowSyntaxError(ValueError):
    """A malformed window; `offset` is the position in its text."""

    def __init__(self, reason: str, offset: int) -> None:
        self.reason = reason
        self.offset = offset
        super().__init__(reason)


def parse_window(text: str) -> Window:
    """Read the text between the brackets of a STREAM clause.

    Raises:
        WindowSyntaxError: it is no window; with the offset of the first bad word.
    """
    return _WindowReader(text).window()


def _number(digits: str, offset: int) -> int:
    if len(digits) > _DIGITS:
        raise WindowSyntaxError(f"a number of more than {_DIGITS} digits", offset)
    return int(digits)


class _WindowReader:
    def __init__(self, text: str) -> None:
        self._words: list[tuple[str, int]] = []
        for match in _WORD.finditer(text):
            self._words.append((match.group(), match.start()))
        self._end = len(text.rstrip())
        self._at = 0

    def window(self) -> Window:
        word, offset = self._next("NOW, ALL, RANGE or TRIPLES")
        match word.upper():
            case "NOW":
                result: Window = Now()
            case "ALL":
                result = All()
            case "TRIPLES":
                count, where = self._next("a number of triples")
                if not count.isdecimal() or _number(count, where) == 0:
                    raise WindowSyntaxError("TRIPLES needs a positive whole number", where)
                result = Triples(int(count))
            case "RANGE":
                width = self._duration()
                slide = None
                if self._peek().upper() == "SLIDE":
                    self._at += 1
                    where = self._offset()
                    slide = self._duration()
                    if slide == 0:
                        raise WindowSyntaxError("a slide is at least one millisecond", where)
                result = Range(width, slide)
            case _:
                raise WindowSyntaxError(
                    f"expected NOW, ALL, RANGE or TRIPLES, not {word!r}", offset
                )
        if self._peek():
            raise WindowSyntaxError(f"unexpected {self._peek()!r} in a window", self._offset())
        return result

    def _duration(self) -> int:
        """Read one or more numbers with units, as whole milliseconds.

        Timestamps are whole milliseconds, so t' >= t - d is the same for d rounded down.
        """
        total = 0
        seen = False
        while not seen or self._peek().isdecimal():
            digits, where = self._next("a duration such as 3s or 500ms")
            if not digits.isdecimal():
                raise WindowSyntaxError(f"expected a duration, not {digits!r}", where)
            number = _number(digits, where)
            unit, where = self._next("a unit: ms, s, m, h or d")
            length = nanoseconds_of(unit)
            if length is None:
                raise WindowSyntaxError(
                    f"{unit!r} is no unit of time; use ns, ms, s, m, h or d", where
                )
            total += number * length
            seen = True
        return total // 1_000_000

    def _next(self, expected: str) -> tuple[str, int]:
        if self._at == len(self._words):
            raise WindowSyntaxError(f"expected {expected}", self._end)
        self._at += 1
        return self._words[self._at - 1]

    def _peek(self) -> str:
        return self._words[self._at][0] if self._at < len(self._words) else ""

    def _offset(self) -> int:
        return self._words[self._at][1] if self._at < len(self._words) else self._end
