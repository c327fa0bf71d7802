"""What is joined: inputs that hold rows, and conditions on what they have together."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from annotations.terms import Variable
from tpf_client.dataflow.changes import Condition, Schema, Solution
from tpf_client.dataflow.state.row_index import Columns, RowBag


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """A condition on a joined row.

    Args:
        variables: what it needs.
        check: takes the values of exactly these variables, in this order.
        text: the same as an expression with a place for each value, to spare the call.
        constant: what `text` calls ``{constant}``: not a part of it, so that the code that is made
            is the same for all constants, and compiled once.
    """

    variables: tuple[Variable, ...]
    check: Condition
    text: str = ""
    constant: int | None = None


class JoinInput:
    """One input of a join: its variables, its rows, and the route of rows that arrive at it.

    Attributes:
        label: what it is, for people.
        takes_expired: whether rows that go must be routed too.
        route: takes a row and how many copies came (positive) or went (negative). Rows must be in
            `bag` before they are routed, and out of it before they are routed as gone.
        order: the inputs in the order in which `route` visits them.
        candidate: another order that was better when routes were last looked at.
        size: how many rows there are; must cost nothing.
        recent: gives some rows, where rows come all the time those that came last.
        seldom: whether rows come or go so seldom that their route, and the indexes that it needs,
            are made when a row does, and given back afterwards.
    """

    def __init__(
        self,
        label: str,
        variables: Schema,
        bag: Callable[[], RowBag],
        size: Callable[[], int],
        recent: Callable[[], Sequence[Solution]] = tuple,
        *,
        seldom: bool = False,
    ) -> None:
        self.label = label
        self.variables = variables
        self.takes_expired = True
        self.route: Callable[[Solution, int], None] = _unbuilt
        self.order: tuple[int, ...] = ()
        self.candidate: tuple[int, ...] = ()
        self.wanted: list[tuple[int, Columns]] = []
        self.size = size
        self.recent = recent
        self.seldom = seldom
        self._bag = bag

    @property
    def bag(self) -> RowBag:
        """The rows that are there."""
        return self._bag()

    def columns_of(self, names: Container[Variable]) -> Columns:
        """The columns that have one of these variables."""
        return tuple([place for place, name in enumerate(self.variables) if name in names])

    def hold(self) -> None:
        """Have rows kept from now on, because a route may come to probe them."""
        self._bag()


def _unbuilt(_row: Solution, _count: int) -> None:
    raise AssertionError("rows arrived before the join was started")
