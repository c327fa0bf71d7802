"""Property paths ``*``, ``+`` and ``?``, evaluated outwards from their starts.

Edges are seeded with the *frontier*, one round at a time. After a retraction reachability is
computed again from the edges held.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from annotations.terms import Variable
from tpf_client.dataflow.changes import Solution, add_copies
from tpf_client.dataflow.node import Input, Node, Work

Place: TypeAlias = Solution
"""A node of the graph: its term, and its graph where that is a variable."""
PairSolution: TypeAlias = Callable[[Place, Place], Solution | None]
Edges: TypeAlias = dict[Place, dict[Place, int]]


class Closure(Node):
    """The distinct pairs of a start and a node reachable from it.

    Args:
        frontier: the input that seeds `edges`; ``None`` where `edges` has them all.
        shape: the output solution of a pair; ``None`` leaves it out.
        at_least_once: a node must be reached by a step to be its own end.
        many: more than one step may be taken.
    """

    def __init__(
        self,
        starts: Node,
        edges: Node,
        frontier: Input | None,
        schema: Sequence[Variable],
        shape: PairSolution,
        *,
        at_least_once: bool,
        many: bool,
    ) -> None:
        super().__init__(schema, frozenset(schema), monotone=starts.monotone and edges.monotone)
        self._frontier = frontier
        self._requested: set[Place] = set()
        self._shape = shape
        self._at_least_once = at_least_once
        self._many = many
        self._edges: Edges = {}
        self._starts: dict[Place, int] = {}
        self._reached: dict[Place, set[Place]] = {}
        self._reached_from: dict[Place, set[Place]] = {}
        self._new_starts: list[Place] = []
        self._new_edges: list[tuple[Place, Place]] = []
        self._shrunk = False
        self._work: Work | None = None
        starts.connect(self._push_start)
        edges.connect(self._push_edge)

    def limit(self, work: Work) -> None:
        """See `Node.limit`: what is reached counts as rows."""
        self._work = work

    @property
    def pending(self) -> bool:
        """True if edges or starts came or went."""
        return self._shrunk or bool(self._new_starts or self._new_edges)

    def _push_start(self, solution: Solution, count: int) -> None:
        total = add_copies(self._starts, solution, count)
        if total - count <= 0 < total:
            self._new_starts.append(solution)
        elif total <= 0 < total - count:
            self._shrunk = True

    def _push_edge(self, solution: Solution, count: int) -> None:
        graph = solution[2:]
        source, target = (solution[0], *graph), (solution[1], *graph)
        targets = self._edges.setdefault(source, {})
        total = add_copies(targets, target, count)
        if not targets:
            del self._edges[source]
        if total - count <= 0 < total:
            self._new_edges.append((source, target))
        elif total <= 0 < total - count:
            self._shrunk = True

    def flush(self) -> None:
        """Compute what is reached, send the difference, and extend the frontier."""
        if not self.pending:
            return
        if self._shrunk:
            self._start_anew()
        else:
            self._extend()
        if self._frontier is not None:
            self._ask()

    def _extend(self) -> None:
        starts, self._new_starts = self._new_starts, []
        edges, self._new_edges = self._new_edges, []
        for start in starts:
            if start not in self._reached and self._starts.get(start, 0) > 0:
                self._reached[start] = set()
                if not self._at_least_once:
                    self._reach(start, start)
                self._spread(start, [start])
        for source, target in edges:
            for start in list(self._reached_from.get(source, ())) if self._many else ():
                if self._reach(start, target):
                    self._spread(start, [target])
            if source in self._reached and self._reach(source, target) and self._many:
                self._spread(source, [target])

    def _reach(self, start: Place, end: Place) -> bool:
        if end in self._reached[start]:
            return False
        self._spend(1)
        self._reached[start].add(end)
        self._reached_from.setdefault(end, set()).add(start)
        self._tell(start, end, 1)
        return True

    def _spread(self, start: Place, nodes: list[Place]) -> None:
        while nodes:
            ends = [each for each, n in self._edges.get(nodes.pop(), {}).items() if n > 0]
            new = [target for target in ends if self._reach(start, target)]
            if self._many:
                nodes.extend(new)

    def _start_anew(self) -> None:
        self._shrunk = False
        self._new_starts, self._new_edges = [], []
        before = self._reached
        self._reached = {}
        for start, count in self._starts.items():
            if count > 0:
                ends = reachable(start, self._edges, self._at_least_once, self._many)
                self._spend(len(ends) - len(before.get(start, ())))
                self._reached[start] = ends
        self._spend(-sum(len(ends) for start, ends in before.items() if start not in self._reached))
        self._reached_from = {}
        for start, ends in self._reached.items():
            for end in ends:
                self._reached_from.setdefault(end, set()).add(start)
            for end in ends - before.get(start, set()):
                self._tell(start, end, 1)
        for start, ends in before.items():
            for end in ends - self._reached.get(start, set()):
                self._tell(start, end, -1)

    def _spend(self, pairs: int) -> None:
        if self._work is not None:
            self._work.spend(pairs)

    def _tell(self, start: Place, end: Place, count: int) -> None:
        solution = self._shape(start, end)
        if solution is not None:
            self.emit(solution, count)

    def _ask(self) -> None:
        assert self._frontier is not None
        frontier = set(self._reached)
        if self._many:
            frontier.update(self._reached_from)
        removed, new = self._requested - frontier, frontier - self._requested
        self._requested = frontier
        for node in new:
            self._frontier.push(node, 1)
        for node in removed:
            self._frontier.push(node, -1)


def reachable(start: Place, edges: Edges, at_least_once: bool, many: bool) -> set[Place]:
    """Return the nodes reachable from a start."""
    reached = set() if at_least_once else {start}
    queue = [start]
    while queue:
        for target, count in edges.get(queue.pop(), {}).items():
            if count > 0 and target not in reached:
                reached.add(target)
                if many:
                    queue.append(target)
    return reached
