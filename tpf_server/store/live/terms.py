"""Terms of a live store as small integers that are free again when nothing refers to them."""

from array import array
from collections.abc import Iterable, Iterator


class TermTable:
    """Counts references to terms and numbers them, densely.

    A process that follows a feed for months sees ever new terms; those of retired facts must go.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._texts: list[str] = []
        self._references = array("q")
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    def find(self, text: str) -> int | None:
        """The number of a term, or ``None`` where nothing refers to it."""
        return self._ids.get(text)

    def text(self, number: int) -> str:
        """The term of a number."""
        return self._texts[number]

    def texts(self, numbers: Iterable[int]) -> Iterator[str]:
        """The terms of many numbers."""
        return map(self._texts.__getitem__, numbers)

    def acquire(self, text: str) -> int:
        """The number of a term, to which there is now one more reference."""
        number = self._ids.get(text)
        if number is not None:
            self._references[number] += 1
            return number
        if self._free:
            number = self._free.pop()
            self._texts[number] = text
            self._references[number] = 1
        else:
            number = len(self._texts)
            self._texts.append(text)
            self._references.append(1)
        self._ids[text] = number
        return number

    def release(self, number: int) -> None:
        """There is one reference less."""
        self._references[number] -= 1
        if not self._references[number]:
            del self._ids[self._texts[number]]
            self._texts[number] = ""
            self._free.append(number)
