"""Terms as integers: small values inlined (see `inlined`), others through a table.

The table of an engine drops terms that nothing holds any more. Positions are never reused.
"""

import re
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Final, Protocol, Self, TypeVar

from annotations.terms import Term
from tpf_client.dataflow.changes import TermId
from tpf_client.sparql.expressions.inlined import (
    SERIAL,
    TAG,
    TAG_BITS,
    inlined_literal,
    text_of_inlined,
)

_PREFIX_BITS: Final = 8
_FIRST: Final = 1 << TAG_BITS
_LONG: Final = 256
"""A text counts once more for so many characters."""
_SERIAL_TEXT = re.compile(r"<(.*?)(0|[1-9]\d{0,14})>", re.ASCII)


class Shiftable(Protocol):
    """Integers that are computed with as one."""

    def __lshift__(self, bits: int, /) -> Self: ...

    def __or__(self, bits: int, /) -> Self: ...


NumbersT = TypeVar("NumbersT", bound=Shiftable)


class _Texts(dict[TermId, Term]):
    def __init__(self, prefixes: Sequence[str]) -> None:
        super().__init__()
        self._prefixes = prefixes

    def __missing__(self, identifier: TermId) -> Term:
        if identifier & TAG != SERIAL:
            return text_of_inlined(identifier)
        rest = identifier >> TAG_BITS
        prefix = self._prefixes[rest & ((1 << _PREFIX_BITS) - 1)]
        return Term(f"<{prefix}{rest >> _PREFIX_BITS}>")


class TermDictionary:
    """Give terms of a query or an engine their integers.

    Without `permanent` only terms added within `permanently` stay. `encode` adds a term, `find`
    does not; `texts` is a read-only mapping.
    """

    def __init__(self, *, permanent: bool = True) -> None:
        self._permanent = self._lasts = permanent
        self._passing: set[TermId] = set()
        # How many terms those of these count for that are long, beside themselves.
        self._long = 0
        self._next = 1
        self._prefixes: list[str] = []
        self.texts: dict[TermId, Term] = _Texts(self._prefixes)
        self._numbers: dict[str, TermId] = {}
        self.find: Callable[[str], TermId | None] = self._numbers.get
        self.decode: Callable[[TermId], Term] = self.texts.__getitem__
        self._forgetters: list[Callable[[list[TermId]], None]] = []

    def encode(self, term: Term) -> TermId:
        """Return the integer of a term; give it one if it is new."""
        identifier = self._numbers.get(term)
        if identifier is not None:
            if self._permanent:
                self._passing.discard(identifier)
            return identifier
        if term[0] == '"':
            inlined = inlined_literal(term)
            if inlined is not None:
                return inlined
        elif self._prefixes and term[0] == "<":
            match = _SERIAL_TEXT.fullmatch(term)
            if match is not None and match.group(1) in self._prefixes:
                return self.serial(self._prefixes.index(match.group(1)), int(match.group(2)))
        identifier = self._next << TAG_BITS
        self._next += 1
        self._numbers[term] = identifier
        self.texts[identifier] = term
        if not self._permanent:
            self._passing.add(identifier)
            self._long += len(term) // _LONG
        return identifier

    def register_prefix(self, prefix: str) -> int | None:
        """Let IRIs of `prefix` and a number be inlined; return the code for `serial`."""
        if prefix in self._prefixes:
            return self._prefixes.index(prefix)
        beginning = f"<{prefix}"
        full = self._lasts or len(self._prefixes) == 1 << _PREFIX_BITS
        if full or any(term.startswith(beginning) for term in self._numbers):
            return None
        self._prefixes.append(prefix)
        return len(self._prefixes) - 1

    def serial(self, prefix: int, number: int) -> TermId:
        """Return the integer of a registered prefix with a number."""
        return ((number << _PREFIX_BITS | prefix) << TAG_BITS) | SERIAL

    def serials(self, prefix: int, numbers: NumbersT) -> NumbersT:
        return ((numbers << _PREFIX_BITS | prefix) << TAG_BITS) | SERIAL

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def passing(self) -> int:
        """Return the number of terms from streams or computed; long ones count as more."""
        return len(self._passing) + self._long

    @property
    def lasting(self) -> int:
        """Return the number of terms from static data or queries."""
        return len(self.texts) - len(self._passing)

    @contextmanager
    def permanently(self) -> Iterator[None]:
        """Keep the terms added meanwhile: they are of static data or queries."""
        before, self._permanent = self._permanent, True
        try:
            yield
        finally:
            self._permanent = before

    @property
    def tables(self) -> tuple[object, ...]:
        """Return the tables, which hold no term alive."""
        return self._numbers, self._passing, self.texts

    def forget(self, held: Set[TermId], *, everything: bool = False) -> int:
        """Drop the terms that are not held; return how many."""
        stale = [each for each in (self.texts if everything else self._passing) if each not in held]
        for number in stale:
            del self._numbers[self.texts.pop(number)]
        self._passing.difference_update(stale)
        texts = self.texts
        self._long = sum(len(texts[each]) // _LONG for each in self._passing)
        if stale:
            for forget in self._forgetters:
                forget(stale)
        return len(stale)

    def on_forget(self, forget: Callable[[list[TermId]], None]) -> None:
        """Call `forget` with the integers of dropped terms."""
        if not self._lasts:
            self._forgetters.append(forget)
