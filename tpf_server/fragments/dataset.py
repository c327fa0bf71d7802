"""A served dataset: its settings and its open stores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from annotations.methods.base import NAMED_GRAPHS, FactPattern, Part
from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, Variable, is_variable
from tpf_server.settings import PLAIN, DatasetSettings
from tpf_server.store.live.store import LiveStore
from tpf_server.store.protocols import Snapshot
from tpf_server.store.static.columnar import ColumnarStore

# Quads that are static and live at the same time, so that they are shown and counted once.
#
# Where a live fact shows its own quad, and the dataset holds the same quad as a static one, the
# live fact is the one that is shown, because it carries a label: when that has ended, the static
# quad is there again. Hardly any dataset has such quads; so they are remembered one by one as the
# facts come, and a fragment costs nothing more where none of them matches its pattern.

EVERYTHING = QuadPattern(Variable("?s"), Variable("?p"), Variable("?o"), Variable("?g"))
"""The pattern that every quad matches."""


class _Overlap:
    """The static quads of a dataset that are live facts, too."""

    def __init__(self, static: ColumnarStore, live: LiveStore) -> None:
        self._static = static
        self._live = live
        self._predicates: dict[Term, bool] = {}
        self._quads: dict[Quad, None] = {}
        self.close = live.watch(self._is_static_predicate, self._see)
        """Watch no more."""

    def _is_static_predicate(self, predicate: Term) -> bool:
        occurs = self._predicates.get(predicate)
        if occurs is None:
            occurs = self._static.count(EVERYTHING._replace(predicate=predicate)) > 0
            self._predicates[predicate] = occurs
        return occurs

    def _see(self, quads: Sequence[Quad]) -> None:
        self._quads.update(dict.fromkeys(self._static.held(quads)))

    def hidden(
        self, pattern: QuadPattern, parts: Iterable[Part], snapshot: Snapshot
    ) -> list[tuple[int, Quad]]:
        """Return the static matches that live facts show, with their positions."""
        if not self._quads:
            return []
        parts = tuple(parts)
        return sorted(
            (self._static.position(pattern, quad), quad)
            # Another thread may see one just now.
            for quad in tuple(self._quads)
            if _matches(pattern, quad) and any(self._shows(p, quad, snapshot) for p in parts)
        )

    def _shows(self, part: Part, quad: Quad, snapshot: Snapshot) -> bool:
        facts = _narrowed(part.facts, quad)
        return facts is not None and any(
            part.render(fact) == quad and (part.residual is None or part.residual(fact))
            for fact in self._live.facts(facts, snapshot, 0, 2)
        )


def _narrowed(facts: FactPattern, quad: Quad) -> FactPattern | None:
    if any(
        expected is not None and expected != term
        for expected, term in zip(facts[:3], quad, strict=False)
    ):
        return None
    if facts.graph == NAMED_GRAPHS:
        if quad.graph == DEFAULT_GRAPH:
            return None
    elif facts.graph is not None and facts.graph != quad.graph:
        return None
    return facts._replace(
        subject=quad.subject, predicate=quad.predicate, object=quad.object, graph=quad.graph
    )


def _matches(pattern: QuadPattern, quad: Quad) -> bool:
    bindings: dict[str, str] = {}
    for expected, term in zip(pattern, quad, strict=True):
        if (bindings.setdefault(expected, term) if is_variable(expected) else expected) != term:
            return False
    return True


@dataclass(frozen=True, slots=True)
class OpenDataset:
    """A dataset with its open stores; either may be missing."""

    settings: DatasetSettings
    static: ColumnarStore | None = None
    live: LiveStore | None = None
    overlap: _Overlap | None = field(init=False, default=None)
    """The quads that are in both stores."""

    def __post_init__(self) -> None:
        if self.static is not None and self.live is not None:
            object.__setattr__(self, "overlap", _Overlap(self.static, self.live))

    @property
    def views(self) -> tuple[str, ...]:
        """The views at ``/{dataset}/{view}``; none without live facts."""
        return self.settings.views if self.live is not None else ()

    @property
    def has_plain_view(self) -> bool:
        """True where a URL shows live facts as their own quads."""
        return self.live is not None and (
            PLAIN in self.settings.views or self.settings.annotation == PLAIN
        )

    def in_both(self, snapshot: Snapshot) -> frozenset[Quad]:
        """Return the static quads that are live, too."""
        own = Part(FactPattern(), attrgetter("quad"))
        hidden = self.overlap.hidden(EVERYTHING, (own,), snapshot) if self.overlap else ()
        return frozenset([quad for _, quad in hidden])

    def close(self) -> None:
        if self.overlap is not None:
            self.overlap.close()
        for store in (self.static, self.live):
            if store is not None:
                store.close()
