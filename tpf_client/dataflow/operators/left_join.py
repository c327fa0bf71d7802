"""Left join: OPTIONAL."""

from tpf_client.dataflow.changes import UNBOUND, Condition, Solution
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.layout import layout
from tpf_client.dataflow.operators.matching import Matching


class LeftJoin(Matching):
    """Compatible pairs for which the condition is true; left solutions without any, as they are.

    Args:
        left: the solutions that are all kept.
        right: what is optional.
        condition: sees the merged solution (schema: all of the left, then what only the right
            has); ``None``: true.
    """

    def __init__(self, left: Node, right: Node, condition: Condition | None = None) -> None:
        how = layout(left.schema, left.certain, right.schema, right.certain)
        self._merge = how.merge
        self._padding = (UNBOUND,) * (len(how.schema) - len(left.schema))

        def pair(one: Solution, other: Solution) -> bool:
            merged = how.merge(one, other)
            return merged is not None and (condition is None or condition(merged))

        super().__init__(left, right, how, how.schema, left.certain, pair)

    def matched(self, left: Solution, right: Solution, count: int) -> None:
        """Send a pair at once."""
        merged = self._merge(left, right)
        if merged is not None and count:
            self.emit(merged, count)

    def render(self, left: Solution, has_partners: bool) -> Solution | None:
        """A left solution that is alone."""
        return None if has_partners else left + self._padding
