"""A continuous query as it is planned now, until it has to be planned anew."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tpf_client.dataflow.changes import UNBOUND, Change, Solution
from tpf_client.dataflow.operators.output import Output
from tpf_client.planner.evaluation import Evaluation
from tpf_client.planner.leaves import FragmentLeaves
from tpf_client.sparql.algebra import Row
from tpf_client.streaming.detection import Detected
from tpf_client.streaming.validity import Span, Validity

LEAST_TERMS = 10_000
"""So many terms are never too many to keep."""


@dataclass(slots=True)
class PlannedQuery:
    """A query as it is planned now: its dataflow, and what of its answer was told."""

    detected: Detected
    evaluation: Evaluation
    leaves: FragmentLeaves
    output: Output
    validity: Validity
    held_back: Counter[Solution] = field(default_factory=Counter)
    terms: int | None = None
    """How many terms its first evaluation met."""

    @property
    def outgrown(self) -> bool:
        """Whether most of the terms that it knows are surely gone.

        Identifiers of terms are for good in a dataflow, because they are everywhere in it. So a
        query that has met many new terms is planned anew, which costs a first evaluation.
        """
        known = len(self.evaluation.dictionary)
        return self.terms is not None and known > 2 * max(self.terms, LEAST_TERMS)

    def measure(self) -> None:
        """Take note of an evaluation that succeeded."""
        if self.terms is None:
            self.terms = len(self.evaluation.dictionary)

    def now(self) -> datetime:
        """The present instant on the server's clock."""
        return self.evaluation.source.now()

    def row(self, solution: tuple[int, ...]) -> Row:
        """A solution in terms."""
        decode = self.evaluation.dictionary.decode
        return tuple([decode(each) if each else None for each in solution])

    def encode(self, row: Row) -> Solution:
        """A row as a solution."""
        encode = self.evaluation.dictionary.encode
        return tuple([UNBOUND if term is None else encode(term) for term in row])

    def decode(self, changes: Sequence[Change]) -> list[Row]:
        """Solutions as rows, as often as there are copies."""
        return [row for solution, count in changes for row in [self.row(solution)] * count]

    def hold_back(self) -> None:
        """Keep what a failed evaluation changed until one succeeds."""
        for solution, count in self.output.take_changes():
            self.held_back[solution] += count

    def take_changes(self) -> list[Change]:
        """What changed since it was last told."""
        self.hold_back()
        changes = [(solution, count) for solution, count in self.held_back.items() if count]
        self.held_back.clear()
        return changes

    def told_rows(self) -> list[Row]:
        """The whole answer as it was last told; where a failure interrupted it, in no order."""
        changed = {solution: count for solution, count in self.held_back.items() if count}
        if not changed:
            return self.rows()
        now = self.output.multiset()
        now.subtract(changed)
        return [self.row(each) for each, count in now.items() for _ in range(count)]

    def rows(self) -> list[Row]:
        """The whole answer."""
        return [self.row(each) for each in self.output.rows()]

    def late_rows(self, at: datetime) -> list[Row]:
        """The rows that are there by grace alone."""
        if not self.validity.any_late:
            # Nothing is to be looked at for each row, tick by tick.
            return []
        late = self.validity.late(self.output.multiset().items(), at)
        return [self.row(each) for each in late]

    def timed_rows(self, at: datetime) -> list[tuple[Row, Span]]:
        """The whole answer with when each row holds."""
        counts = list(self.output.multiset().items())
        spans = zip(counts, self.validity.spans(counts, at), strict=True)
        left = {solution: iter(copies) for (solution, _), copies in spans}
        return [(self.row(each), next(left[each])) for each in self.output.rows()]
