"""Turn the changes of a dataflow's result into emissions."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution
from tpf_client.sparql.algebra import Query, Row
from tpf_server.continuous.runtime.semantics import Semantics


class Emission(NamedTuple):
    """The emission of a query at one arrival.

    Args:
        sequence: the number of the arrival in the engine, from 1.
        at: the stream time, in milliseconds since 1970.
        rows: solutions in the order of the query's variables, triples for CONSTRUCT, the empty row
            for an ASK query that is true; repeated by multiplicity.
        removed: these rows left the result (DStream).
    """

    sequence: int
    at: int
    rows: tuple[Row, ...]
    removed: bool = False


Callback = Callable[[Emission], None]


def wanted_variables(query: Query) -> tuple[Variable, ...]:
    """Return the variables from which the rows of a query are made."""
    if query.form in ("SELECT", "DESCRIBE"):
        return query.variables
    return tuple(
        dict.fromkeys(Variable(term) for each in query.template for term in each if term[0] == "?")
    )


class Phase:
    """The phase of an engine: rows that come while `inserting` were derived from the arrival."""

    __slots__ = ("inserting",)

    def __init__(self) -> None:
        self.inserting = False


class Delivery:
    """The sink at the end of a dataflow, which collects the changes of an arrival.

    `wake` is called with this delivery when there is something to emit.

    Attributes:
        repeats: all is emitted at each arrival and multiple of a slide.
        silent: nothing is emitted where there are no rows.
        whole: all of the result is emitted each time.
        visible: maps a solution to the part that a reader sees; ``None``: all of it.
        column: has the numbers of the queries that have a solution; ``None``: all have it.
    """

    visible: Callable[[Solution], Solution] | None = None
    column: int | None = None

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
        self.whole = semantics.relation in ("rstream", "answer")
        self.repeats = semantics.relation == "rstream"
        self.silent = True
        self._asked = False
        self._nets = semantics.nets
        self.push: Callable[[Solution, int], None] = (
            self._push_change if semantics.nets else self._push_derived
        )

    def _push_derived(self, solution: Solution, count: int) -> None:
        if count > 0 and self._phase.inserting:
            if not self.awake:
                self._rise()
            self._derived.append((solution, count))

    def _push_change(self, solution: Solution, count: int) -> None:
        if not self.awake:
            self._rise()
        self._changes[solution] = self._changes.get(solution, 0) + count

    def takes(self) -> bool:
        """True if a change that comes now would be emitted."""
        return self._nets or self._phase.inserting

    def rouse(self) -> None:
        """Emit, changed or not."""
        self._asked = True
        self._rise()

    def _rise(self) -> None:
        if not self.awake:
            self.awake = True
            self._wake(self)

    def take(self) -> tuple[list[tuple[Solution, int]], bool]:
        """Take what is to be emitted now; the flag: it left the result."""
        self.awake = False
        self.taken = True
        if self._derived:
            derived, self._derived = self._derived, []
            return derived, False
        changes, self._changes = self._changes, {}
        if self.column is not None:
            changes = _by_query(changes, self.column, whole=self.visible is None)
        if self.visible is not None and self._relation in ("istream", "dstream"):
            changes = _seen(changes, self.visible, 1 if self._relation == "istream" else -1)
        match self._relation:
            case "istream":
                return [(row, count) for row, count in changes.items() if count > 0], False
            case "dstream":
                return [(row, -count) for row, count in changes.items() if count < 0], True
        # An answer in which nothing is left is told, too.
        asked, self._asked = self._asked, False
        self.silent = not (asked or self._differs(changes))
        whole = self._whole
        for row, count in changes.items():
            total = whole.get(row, 0) + count
            if total:
                whole[row] = total
            else:
                whole.pop(row, None)
        return [] if self.silent else list(whole.items()), False

    def _differs(self, changes: dict[Solution, int]) -> bool:
        if self.visible is None:
            return any(changes.values())
        totals: Counter[Solution] = Counter()
        for solution, count in changes.items():
            totals[self.visible(solution)] += count
        return any(totals.values())


def _by_query(changes: dict[Solution, int], column: int, *, whole: bool) -> dict[Solution, int]:
    """Net what the same query has of equal solutions; queries with the same change stay together.

    Without `whole` each query gets solutions of its own.
    """
    alike: dict[Solution, list[tuple[Any, int]]] = {}
    for solution, count in changes.items():
        rest = (*solution[:column], *solution[column + 1 :])
        alike.setdefault(rest, []).append((solution[column], count))
    result: dict[Solution, int] = {}
    for rest, own in alike.items():
        if len(own) > 1 or not whole:
            totals: dict[int, int] = {}
            for numbers, count in own:
                for number in numbers if isinstance(numbers, tuple) else (numbers,):
                    totals[number] = totals.get(number, 0) + count
            own = list(totals.items())
            if whole:
                together: dict[int, list[int]] = {}
                for number, count in own:
                    together.setdefault(count, []).append(number)
                own = [(tuple(numbers), count) for count, numbers in together.items() if count]
        for numbers, count in own:
            result[(*rest[:column], numbers, *rest[column:])] = count
    return result


def _seen(
    changes: dict[Solution, int], visible: Callable[[Solution], Solution], sign: int
) -> dict[Solution, int]:
    """Return the changes of a sign that a reader sees; one may hide another."""
    totals: Counter[Solution] = Counter()
    for solution, count in changes.items():
        totals[visible(solution)] += count * sign
    results = {}
    for solution, count in changes.items():
        seen = visible(solution)
        shown = min(count * sign, totals[seen])
        if shown > 0:
            totals[seen] -= shown
            results[solution] = shown * sign
    return results
