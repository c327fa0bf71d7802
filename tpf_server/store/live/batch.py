"""What a batch means: the versions that come, and those that end, are replaced or withdrawn.

The rules, for facts with one key (an expiring fact counts as starting now):

- An expiring fact replaces the expiring fact, and ends an interval that is open now.
- An interval ends an interval that is open at its start; one with the same start it replaces (a
  correction). An expiring fact that lasts beyond its start it replaces, or ends at its start where
  that lies in the future.
- A label that reaches into an interval that starts later is refused: the later one was published
  as the truth, and whoever means to correct it must say so from its start.
- A fact that is there already, with the same label, stays as it is.

A withdrawal says that a quad did not hold, or will not: within an interval, or from now on. What
said otherwise is cut: an interval may fall into two, an expiring fact ends where it is cut first.
Withdrawals of a batch go before its facts, so that a batch can correct what it would overlap.
"""

from collections.abc import Sequence
from typing import TypeAlias

from annotations.errors import OverlapError
from annotations.instants import format_instant, from_micros, to_micros
from annotations.labels import Fact, FactKey, check_no_overlap, key_of
from tpf_server.errors import PublishError
from tpf_server.store.live.index import FactIndex
from tpf_server.store.live.log import NO_START
from tpf_server.store.live.planner import Effects, Planner, quad_shown
from tpf_server.store.live.withdrawal import Withdrawals, WithdrawingPlanner

FactGroups: TypeAlias = list[list[tuple[int, int, Fact]]]
"""Facts with the start and end of their labels, grouped by key, each group by start."""


def checked(facts: Sequence[Fact], now: int, accept_past: bool, key: FactKey) -> FactGroups:
    """The facts of a batch as (start, end, fact), grouped by key, each group by start.

    Raises:
        PublishError: a fact without a label, a label that has ended, overlapping labels.
    """
    groups: dict[tuple[str, ...], list[tuple[int, int, Fact]]] = {}
    for fact in facts:
        label = fact.label
        if label is None:
            raise PublishError(f"a live fact needs a time label: {quad_shown(fact.quad)}")
        start = NO_START if label.start is None else to_micros(label.start)
        end = to_micros(label.end)
        if end <= now and not (accept_past and start != NO_START):
            raise PublishError(
                f"the label of {quad_shown(fact.quad)} ended at {format_instant(label.end)}, "
                f"and it is {format_instant(from_micros(now))}"
            )
        groups.setdefault(key_of(fact.quad, key), []).append((start, end, fact))
    for group in groups.values():
        if len(group) > 1:
            try:
                check_no_overlap([fact for _, _, fact in group], key)
            except OverlapError as error:
                raise PublishError(str(error)) from error
            group[:] = sorted(dict.fromkeys(group), key=lambda one: one[0])
    return list(groups.values())


def plan(
    index: FactIndex, groups: FactGroups, now: int, withdrawals: Withdrawals | None = None
) -> Effects:
    """What a batch does to the newest state of an index, which stays as it is.

    Where this fails or the effects come to nothing, `undo` frees the numbers that were taken.

    Raises:
        PublishError: a label reaches into an interval that was published to start later.
    """
    effects = Effects()
    planners: dict[tuple[str, ...], WithdrawingPlanner] = {}
    for key, cuts in (withdrawals or {}).items():
        planners[key] = WithdrawingPlanner(index, effects, now, cuts[0][2])
        planners[key].withdraw(cuts)
    try:
        for group in groups:
            quad = group[0][2].quad
            known = planners.get(key_of(quad, index.key)) if planners else None
            (known or Planner(index, effects, now, quad)).plan(group)
    except PublishError:
        undo(index, effects)
        raise
    return effects


def undo(index: FactIndex, effects: Effects) -> None:
    """Free the numbers that were taken for effects that do not take place."""
    index.give_back([version.row for version in effects.added], effects.slots)
