"""Answers on a terminal: tables, and the board that updates in place."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from annotations.terms import is_iri, is_literal, literal_parts
from tpf_client.fragments.fetcher import Statistics
from tpf_client.solutions import Row, Solution
from tpf_client.stream import Update

_MAX_COMPARISONS = 250_000
"""More than a screen could show; then nothing is taken for changed."""

STATIC = "nothing in this dataset is labelled: its answer cannot change"


def cell(term: str | None) -> str:
    """A term for people: the text of a literal, an IRI without its brackets."""
    if term is None:
        return ""
    if is_literal(term):
        return literal_parts(term).lexical
    return term[1:-1] if is_iri(term) else term


def solution_table(variables: Sequence[str], solutions: Sequence[Solution]) -> Table:
    """Solutions as a table."""
    table = Table(*variables, highlight=False)
    for solution in solutions:
        table.add_row(*(Text(cell(term)) for term in solution.row))
    return table


class Board:
    """The present answer of a continuous query, as something that rich can show.

    New rows are green, changed cells yellow, rows that are gone stay dim until the next update.

    Args:
        height: how many rows there is room for.
    """

    def __init__(self, height: int) -> None:
        self._height = max(height, 1)

    def render(self, update: Update, statistics: Statistics) -> RenderableType:
        """The board after an update."""
        table = Table(*update.variables, highlight=False)
        added = [solution.row for solution in update.added]
        removed = [solution.row for solution in update.removed]
        changed = pairs(added, removed)
        new = set(added)
        results = update.results
        rows = 0
        for solution in results[: self._height]:
            before = changed.get(solution.row)
            rows += 1
            table.add_row(
                *(
                    Text(cell(term), style=_style(solution.row, place, before, new))
                    for place, term in enumerate(solution.row)
                )
            )
        paired = set(changed.values())
        for row in removed:
            if row not in paired and rows < self._height:
                rows += 1
                table.add_row(*(Text(cell(term), style="dim strike") for term in row))
        footer = Text(style="dim")
        if len(results) > self._height:
            footer.append(f"{len(results) - self._height} more rows · ")
        footer.append(f"{len(results)} rows at {_time(update.at, update.at)} UTC")
        footer.append(f" · valid until {_time(update.valid_until, update.at)}")
        footer.append(f" · next look {_time(update.wakes_at, update.at)}")
        footer.append(f" · {statistics.requests} requests, {statistics.cache_hits} from cache")
        lines: list[RenderableType] = [table, footer]
        if not update.dynamic:
            lines.append(Text(STATIC))
        lines += [Text(f"warning: {each}", style="yellow") for each in update.warnings]
        if update.error is not None:
            lines.append(Text(f"error: {update.error}; trying again", style="red"))
        return Group(*lines)


def pairs(added: Sequence[Row], removed: Sequence[Row]) -> dict[Row, Row]:
    """Which added row is which removed one, changed: those that agree in most cells.

    In at least a half of them; of equally many, in those that are more to the left, as keys are.
    """
    new, old = dict.fromkeys(added), dict.fromkeys(removed)
    if len(new) * len(old) > _MAX_COMPARISONS:
        return {}
    candidates = []
    for row in new:
        for other in old:
            same = [a == b for a, b in zip(row, other, strict=True)]
            if 2 * sum(same) >= len(row):
                candidates.append((sum(same), same, row, other))
    candidates.sort(key=lambda each: each[:2], reverse=True)
    result: dict[Row, Row] = {}
    taken: set[Row] = set()
    for _, _, row, other in candidates:
        if row not in result and other not in taken:
            result[row] = other
            taken.add(other)
    return result


def _style(row: Row, place: int, before: Row | None, new: set[Row]) -> str:
    if before is not None:
        return "bold yellow" if row[place] != before[place] else ""
    return "green" if row in new else ""


def _time(instant: datetime | None, now: datetime) -> str:
    """An instant for people: to the second, in UTC; with its date where that is not today."""
    if instant is None:
        return "—"
    utc = instant.astimezone(UTC)
    return f"{utc:%H:%M:%S}" if utc.date() == now.astimezone(UTC).date() else f"{utc:%F %H:%M:%S}"
