"""One request per subject in place of one for each of its properties."""

from dataclasses import dataclass, field

from annotations.terms import QuadPattern
from tpf_client.dataflow.changes import Solution
from tpf_client.fragments.form import Block


@dataclass(slots=True)
class Star:
    """What is asked per subject in place of several patterns of the same subject.

    Args:
        pattern: the pattern that is asked: any property of the subject.
        members: the patterns that it can stand for, with the requests that each takes when it is
            read whole; ``None``: unknown. Those that were answered otherwise are taken out.
    """

    pattern: QuadPattern
    members: dict[QuadPattern, int | None]
    asked: dict[Solution, Block | None] = field(default_factory=dict)

    @property
    def worthwhile(self) -> bool:
        """Whether it spares requests beside asking for one property."""
        return len(self.members) > 1 or bool(self.asked)

    def whole_cost(self) -> int | None:
        """How many requests it takes to read all members whole."""
        known = [pages for pages in self.members.values() if pages is not None]
        return sum(known) if len(known) == len(self.members) else None
