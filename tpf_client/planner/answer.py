"""One evaluation of a query: its solutions as they become known."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.operators.output import Output
from tpf_client.dataflow.operators.slice import Slice
from tpf_client.errors import ClosedError
from tpf_client.planner.evaluation import Evaluation
from tpf_client.sparql.algebra import Row

_Plan: TypeAlias = Callable[[Callable[[Solution, int], None]], tuple[Evaluation, Output]]
OnProgress: TypeAlias = Callable[[int, int], None]
"""Takes the number of pages that a query wanted so far, and of the solutions that it has."""


class Answer:
    """The solutions of a query that is evaluated once.

    Solutions come while requests are still under way, where the query allows it; what a LIMIT
    makes needless is not asked for. What comes out stays true, until for the first time operators
    that are not monotone are made to say what they have although inputs may come again; what comes
    out then is held back until nothing comes any more.

    A fragment that turns out much longer than its server promised makes the plan a bad one: as long
    as no solution was handed out, the query is planned anew with what is known then. Pages that
    were read are not asked for again.

    Args:
        plan: makes an evaluation and its dataflow, with a callback for changes of the output.
        progress: called after each piece of work.
    """

    def __init__(self, plan: _Plan, progress: OnProgress | None = None) -> None:
        self._plan = plan
        self._progress = progress
        self._asked = 0
        self._closed = False
        self._begin()
        self.variables: tuple[Variable, ...] = self._output.variables

    def _begin(self) -> None:
        self._solutions = 0
        self._ready: deque[Solution] = deque()
        self._streams = False
        self._handed_out = False
        self._outdated = False
        self._given: Counter[Solution] = Counter()
        self._evaluation, self._output = self._plan(self._arrive)
        self._streams = not self._output.ordered
        self._evaluation.on_surprise = self._surprised

    def _surprised(self) -> bool:
        """Whether to give up the plan, where a fragment is longer than it should be."""
        self._outdated = self._outdated or not self._handed_out
        return self._outdated

    def close(self) -> None:
        """Stop all requests."""
        self._closed = True
        self._evaluation.driver.close()

    def rows(self) -> Iterator[Row]:
        """The solutions, each as often as it occurs.

        Raises:
            SourceError: a fragment could not be read: what came before may be a part only.
            ClosedError: closed meanwhile.
        """
        try:
            while self._advance():
                yield from self._drain()
            if not self._streams:
                for solution in self._output.rows():
                    if self._given[solution]:
                        self._given[solution] -= 1
                    else:
                        self._ready.append(solution)
            yield from self._drain()
        finally:
            self.close()

    def _advance(self) -> bool:
        """Do some work; ``False`` where there is nothing left to do."""
        if self._outdated:
            self._asked += self._evaluation.driver.requests
            self._evaluation.driver.close()
            self._begin()
        node = self._output.node
        if isinstance(node, Slice) and node.monotone and node.satisfied:
            return False
        if self._closed or self._evaluation.driver.cancelled.is_set():
            raise ClosedError("the query was closed")
        worked = self._evaluation.work()
        if self._progress is not None:
            self._progress(self._asked + self._evaluation.driver.requests, self._solutions)
        if worked:
            return True
        self._streams = self._streams and node.monotone
        self._evaluation.dataflow.flush()
        return self._evaluation.unsettled

    def _arrive(self, solution: Solution, count: int) -> None:
        self._solutions += count
        if self._streams:
            self._handed_out = True
            self._evaluation.hurried = False
            self._ready.extend([solution] * count)
            if not self._output.node.monotone:
                self._given[solution] += count

    def _drain(self) -> Iterator[Row]:
        decode = self._evaluation.dictionary.decode
        while self._ready:
            solution = self._ready.popleft()
            yield tuple([decode(each) if each else None for each in solution])


@dataclass(frozen=True, slots=True)
class CompleteAnswer:
    """An answer that is there already.

    Args:
        variables: as in `Answer`.
        solutions: what `rows` gives.
    """

    variables: tuple[Variable, ...]
    solutions: list[Row]

    def close(self) -> None:
        """Nothing is under way."""

    def rows(self) -> Iterator[Row]:
        """The solutions, each as often as it occurs."""
        return iter(self.solutions)
