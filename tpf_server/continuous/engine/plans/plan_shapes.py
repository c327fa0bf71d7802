"""What a plan comes to that can be one state (see `FusedPlan`): windows, groups, EXISTS, order."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.operators.basic import Distinct
from tpf_client.dataflow.operators.group import Group
from tpf_client.dataflow.operators.matching import SemiJoin
from tpf_client.dataflow.operators.order import TopK
from tpf_client.dataflow.state.ranking import Ranking
from tpf_server.continuous.engine.windows.star_window import StarWindow

RowOf = Callable[[Sequence[Solution]], Solution]
"""A row of a node, of the rows of its groups."""


class RowSource(NamedTuple):
    """Where rows come from.

    Args:
        window: a window.
        columns: of its rows, by the names that others have for them.
    """

    window: StarWindow
    columns: Mapping[Variable, int]


class GateShape(NamedTuple):
    """What EXISTS looks at; rows meet that have the same value of `key`.

    Args:
        other: where the others come from.
        key: a variable of both.
        mine: what of a row is compared, and with what of the others; ``None``: nothing is.
        theirs: see above.
        comparison: how the others compare: ``>``, ``<``, ``>=`` or ``<=``.
        node: the operator.
    """

    other: RowSource
    key: Variable
    mine: Variable | None
    theirs: Variable | None
    comparison: str
    node: SemiJoin


class GroupShape(NamedTuple):
    """The groups of rows.

    Args:
        source: where the rows come from.
        group: the operator.
        keys: where each key of the whole is among its own.
        numbers: for each of the numbers that are kept, which of the aggregates' arguments it is.
        shown: for each of its aggregates, where what is shown of it begins among what is shown of
            the branch; 0: it is how many rows count.
        gate: which rows count; ``None``: all.
    """

    source: RowSource
    group: Group
    keys: tuple[int, ...]
    numbers: tuple[int, ...]
    shown: tuple[int, ...]
    gate: GateShape | None


class PlanShape(NamedTuple):
    """What a plan comes to.

    Args:
        groups: how rows come to groups.
        ranking: what is kept of them.
        order: the operator at the end.
        row: makes a row of what is shown.
        distinct: operators that keep rows, too.
    """

    groups: tuple[GroupShape, ...]
    ranking: Ranking
    order: TopK
    row: RowOf
    distinct: tuple[Distinct, ...]
