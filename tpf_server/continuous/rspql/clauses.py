"""The clauses of RSP-QL that SPARQL has not: windows, durations, report policies and ticks."""

import re
from dataclasses import replace
from typing import Final

from annotations.errors import InstantError
from annotations.instants import parse_instant
from tpf_server.continuous.csparql.windows import SteppedWindow
from tpf_server.continuous.engine.elements.timestamps import milliseconds
from tpf_server.continuous.engine.select_names import SelectNames
from tpf_server.continuous.engine.windows.units import nanoseconds_of
from tpf_server.continuous.rspql.reports import TICKS, ReportPolicy, TickPolicy
from tpf_server.continuous.rspql.windows import ElementWindow, SlidingWindow

_ISO: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{1,3})\d*)?S)?)?",
    re.IGNORECASE,
)
_ISO_UNITS: Final = (86_400_000, 3_600_000, 60_000, 1000)


class ClauseParser(SelectNames):
    """Reads these clauses."""

    # ----------------------------------------------------------------------------- windows

    def window(self) -> SteppedWindow:
        """``[RANGE … STEP …]``, ``[FROM NOW-… TO NOW-… STEP …]`` or ``[ELEMENTS … STEP …]``."""
        if not self.at("["):
            self.expected("a window in square brackets")
        self.advance()
        place = self.token.position
        if self.take_word("ELEMENTS"):
            result: SteppedWindow = self._counted()
        else:
            if self.take_word("RANGE"):
                width, past = self._positive("RANGE"), 0
            elif self.take_word("FROM"):
                begin = self._before_now()
                self.expect_word("TO")
                past = self._before_now()
                width = begin - past
                if width < 1:
                    self.fail("a window begins before it ends", place)
            else:
                self.expected("RANGE, FROM or ELEMENTS")
            step = self._positive("STEP") if self._stepping() else width
            result = SlidingWindow(width, step, self._beginning(), past)
        if not self.at("]"):
            self.expected("']'")
        self.advance()
        return result

    def _stepping(self) -> bool:
        self.take(",")
        return self.take_word("STEP") or self.take_word("SLIDE")

    def _positive(self, what: str) -> int:
        place = self.token.position
        found = self.duration()
        if not found:
            self.fail(f"{what} takes at least one millisecond", place)
        return found

    def _counted(self) -> ElementWindow:
        count = self._number()
        return ElementWindow(count, self._number() if self._stepping() else 1)

    def _number(self) -> int:
        place = self.token.position
        number = self.whole_number("a number of elements")
        if not number:
            self.fail("expected a number of elements, found '0'", place)
        return number

    def _before_now(self) -> int:
        self.expect_word("NOW")
        return self.duration() if self.take("-") else 0

    def _beginning(self) -> int:
        if not self.take_word("STARTING"):
            return 0
        self.expect_word("AT")
        place = self.token.position
        if self.token.kind == "integer":
            return self.whole_number()
        text = self.string()
        if self.take("^^"):
            self.iri()
        try:
            return milliseconds(parse_instant(text))
        except InstantError:
            self.fail(f"{text!r} is no instant with a time zone", place)

    def duration(self) -> int:
        """``PT10S``, ``10 s``, ``10s``, or a number of milliseconds; in milliseconds."""
        begin = self.token.position
        if self.token.kind == "integer":
            number = self.whole_number("a duration")
            unit = self.token.text if self.token.kind == "word" else ""
            length = nanoseconds_of(unit)
            if length is None:
                if self.at_word("STEP", "SLIDE", "TO", "STARTING", "TICK", "AS") or not unit:
                    return number
                self.expected("a unit of time: ms, s, m, h or d")
            self.advance()
            return number * length // 1_000_000
        match = _ISO.match(self.text, begin)
        if match is None or self.token.kind not in ("word", "name"):
            self.expected("a duration such as PT10S or 10s")
        # Its words are those that begin within it.
        while self.token.position < match.end() and self.token.kind != "end":
            if self.token.end > match.end():
                self.fail("expected a duration of days, hours, minutes and seconds", begin)
            self.advance()
        if not any(match.groups()):
            self.fail(f"'{self.text[begin : match.end()]}' is a duration of nothing", begin)
        parts = zip(match.groups()[:4], _ISO_UNITS, strict=True)
        whole = sum(int(number) * unit for number, unit in parts if number)
        return whole + int((match[5] or "0").ljust(3, "0"))

    # ---------------------------------------------------------------------------- policies

    def report(self) -> ReportPolicy:
        """Strategies, with commas or AND between them; all are to hold."""
        policy = ReportPolicy()
        while True:
            place = self.token.position
            if self.take_word("WINDOW"):
                self.expect_word("CLOSE")
                new = replace(policy, window_close=True)
            elif self.take_word("CONTENT"):
                self.expect_word("CHANGE")
                new = replace(policy, content_change=True)
            elif self.take_word("NON"):
                self.take("-")
                self.expect_word("EMPTY")
                self.expect_word("CONTENT")
                new = replace(policy, non_empty=True)
            elif self.take_word("PERIODIC"):
                if policy.period is not None:
                    self.fail("PERIODIC stands here twice", place)
                new = replace(policy, period=self._positive("PERIODIC"))
            else:
                self.expected("WINDOW CLOSE, CONTENT CHANGE, NON-EMPTY CONTENT or PERIODIC")
            if new == policy:
                self.fail("this strategy stands here twice", place)
            policy = new
            if not self.take(",") and not self.take_word("AND"):
                return policy

    def tick(self) -> TickPolicy:
        """The word behind TICK."""
        found = self.token.text.lower()
        if self.token.kind != "word" or found not in TICKS:
            self.expected("TIME, BATCH or TUPLE")
        self.advance()
        return found
