"""What queries will see differently when stores are exchanged, found out before that happens.

Only reading takes long, and needs nothing but the data; so it is done while queries go on.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeAlias

from annotations.terms import QuadPattern, Variable
from tpf_server.continuous.engine.static.dataset import Dataset
from tpf_server.continuous.engine.static.static_cache import BoundRow, evaluate_static
from tpf_server.continuous.engine.static.static_data import StaticData

StaticPart: TypeAlias = tuple[Dataset, Dataset, Sequence[QuadPattern]]


class Preparation:
    """The solutions of static patterns that come and go.

    Args:
        before: the data that are there.
        after: those that will be.
    """

    def __init__(self, before: StaticData, after: StaticData) -> None:
        self._before = before
        self._after = after
        self._wanted: dict[Hashable, StaticPart] = {}
        self._found: dict[
            Hashable, tuple[tuple[Variable, ...], Counter[BoundRow], Counter[BoundRow]]
        ] = {}

    def ask(self, dataset: Dataset, patterns: Sequence[QuadPattern]) -> None:
        """Somebody will want to know it of these patterns."""
        key = dataset.key, tuple(patterns)
        if key not in self._wanted:
            default, named = dataset.key
            self._wanted[key] = (
                Dataset(self._before, default, named),
                Dataset(self._after, default, named),
                tuple(patterns),
            )

    def run(self) -> None:
        """Find it out; nothing of the data may change meanwhile."""
        for key, (before, after, patterns) in self._wanted.items():
            schema, old = evaluate_static(before, patterns)
            columns, new = evaluate_static(after, patterns)
            order = [columns.index(name) for name in schema]
            gone = Counter(old)
            come = Counter(tuple([row[at] for at in order]) for row in new)
            self._found[key] = schema, come - gone, gone - come

    def difference(
        self, dataset: Dataset, patterns: Sequence[QuadPattern]
    ) -> tuple[tuple[Variable, ...], Counter[BoundRow], Counter[BoundRow]] | None:
        """Variables, and the solutions that come and go; ``None``: nobody asked in time."""
        return self._found.get((dataset.key, tuple(patterns)))
