"""From the changes of a dataflow's result to what a reader of a query gets."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from annotations.terms import Term, Variable
from tpf_client.dataflow.changes import Solution
from tpf_client.sparql.algebra import Query
from tpf_server.cqels.errors import BacklogError, ContinuousError
from tpf_server.cqels.semantics import Semantics

Row = tuple[Term | None, ...]


class Emission(NamedTuple):
    """What one arrival made a query emit.

    Args:
        sequence: the number of the arrival in the engine, from 1.
        at: the stream time, in milliseconds since 1970.
        rows: solutions in the order of the query's variables (``None``: unbound), triples for a
            CONSTRUCT query, the empty row for an ASK query that is true; repeated by multiplicity.
        removed: whether these are rows that left the result (DStream).
    """

    sequence: int
    at: int
    rows: tuple[Row, ...]
    removed: bool = False


Callback = Callable[[Emission], None]


class Reader(Protocol):
    """Whoever takes emissions."""

    def deliver(self, emission: Emission) -> None:
        """Take an emission."""


class Results:
    """Emissions of a query, kept until somebody takes them.

    Args:
        limit: how many emissions are kept at most.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: deque[Emission] = deque()
        self._error: ContinuousError | None = None

    def deliver(self, emission: Emission) -> None:
        """Keep an emission; one too many, and the reader is cut off."""
        if self._error is not None:
            return
        if len(self._kept) >= self._limit:
            self._kept.clear()
            self.fail(BacklogError(f"more than {self._limit} results waited to be taken"))
            return
        self._kept.append(emission)

    def fail(self, error: ContinuousError) -> None:
        """Let the reader meet this error after what is kept."""
        self._error = error

    def __len__(self) -> int:
        """How many emissions wait."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Emission]:
        """What waits now, each emission once.

        Raises:
            ContinuousError: the query was stopped, or the reader was too slow.
        """
        while self._kept:
            yield self._kept.popleft()
        if self._error is not None:
            raise self._error


def wanted_variables(query: Query) -> tuple[Variable, ...]:
    """The variables that the rows of a query are made from."""
    if query.form == "SELECT":
        return query.variables
    return tuple(
        dict.fromkeys(Variable(term) for each in query.template for term in each if term[0] == "?")
    )


class Phase:
    """What an engine is doing: whether rows that come now were derived from the arrival."""

    __slots__ = ("inserting",)

    def __init__(self) -> None:
        self.inserting = False


class Delivery:
    """The sink at the end of a dataflow: collects what an arrival changes.

    Args:
        semantics: what of it is emitted.
        wake: is called with this delivery when there is something to emit.
        phase: of the engine.

    Attributes:
        silent: whether nothing is emitted where there are no rows.
        taken: whether something was ever taken.
    """

    def __init__(
        self, semantics: Semantics, wake: Callable[["Delivery"], None], phase: Phase
    ) -> None:
        self._phase = phase
        self._wake = wake
        self._changes: dict[Solution, int] = {}
        self._derived: list[tuple[Solution, int]] = []
        self._whole: dict[Solution, int] = {}
        self._relation = semantics.relation
        self.awake = False
        self.taken = False
        self.silent = semantics.relation != "rstream"
        if semantics.output == "difference":
            self.push: Callable[[Solution, int], None] = self._push_change
        elif semantics.relation == "dstream":
            self.push = self._push_gone
        else:
            self.push = self._push_derived

    def _push_derived(self, solution: Solution, count: int) -> None:
        if count > 0 and self._phase.inserting:
            if not self.awake:
                self.rouse()
            self._derived.append((solution, count))

    def _push_gone(self, solution: Solution, count: int) -> None:
        if count < 0 and not self._phase.inserting:
            if not self.awake:
                self.rouse()
            self._derived.append((solution, -count))

    def _push_change(self, solution: Solution, count: int) -> None:
        if not self.awake:
            self.rouse()
        self._changes[solution] = self._changes.get(solution, 0) + count

    def rouse(self) -> None:
        """Say that there is something to emit."""
        if not self.awake:
            self.awake = True
            self._wake(self)

    def take(self) -> tuple[list[tuple[Solution, int]], bool]:
        """What is to be emitted now, and whether it left the result."""
        self.awake = False
        self.taken = True
        if self._derived:
            derived, self._derived = self._derived, []
            return derived, self._relation == "dstream"
        changes, self._changes = self._changes, {}
        match self._relation:
            case "istream":
                return [(row, count) for row, count in changes.items() if count > 0], False
            case "dstream":
                return [(row, -count) for row, count in changes.items() if count < 0], True
        whole = self._whole
        for row, count in changes.items():
            total = whole.get(row, 0) + count
            if total:
                whole[row] = total
            else:
                whole.pop(row, None)
        return list(whole.items()), False
