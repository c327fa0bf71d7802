"""Leaves over changing quads in memory: scanned, or looked up by seed."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Variable, is_variable
from tpf_client.dataflow.changes import Change, Solution, projection
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow, Input, Leaves, Node
from tpf_client.dataflow.operators.basic import Project
from tpf_client.dataflow.operators.hash_join import HashJoin, LookupJoin
from tpf_client.sparql.algebra import variables_of_quad


def match(
    quad: Quad, pattern: QuadPattern, schema: Sequence[Variable], dictionary: TermDictionary
) -> Solution | None:
    """Return the solution that a quad gives to a pattern."""
    values: dict[str, int] = {}
    for wanted, found in zip(pattern, quad, strict=True):
        if is_variable(wanted):
            if found == DEFAULT_GRAPH:
                return None
            identifier = dictionary.encode(found)
            if values.setdefault(wanted, identifier) != identifier:
                return None
        elif wanted != found:
            return None
    return tuple(values[name] for name in schema)


class ScanningLeaves(Leaves):
    """Every pattern is an input with all its matches; seeds are ignored."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self._inputs: list[tuple[QuadPattern, Input]] = []

    def bgp(self, patterns: Sequence[QuadPattern], seed: Node | None) -> Node:
        node: Node | None = None
        for pattern in patterns:
            leaf = self.flow.add(Input(variables_of_quad(pattern)))
            self._inputs.append((pattern, leaf))
            node = leaf if node is None else self.flow.add(HashJoin(node, leaf))
        assert node is not None
        return node

    def change(self, quads: Iterable[Quad], count: int) -> None:
        """Add (1) or remove (-1) quads."""
        for quad in quads:
            for pattern, leaf in self._inputs:
                solution = match(quad, pattern, leaf.schema, self.flow.dictionary)
                if solution is not None:
                    leaf.push(solution, count)


class _Source:
    """The partners of requested keys; the first answer comes at `answer`."""

    def __init__(self, leaves: "LookupLeaves", pattern: QuadPattern, keys: tuple[Variable, ...]):
        self.leaves = leaves
        self.pattern = pattern
        self.schema = variables_of_quad(pattern)
        self.key = projection(self.schema, keys)
        self.wanted: dict[Solution, Callable[[Iterable[Change]], None]] = {}
        self.waiting: list[Solution] = []

    def request(self, key: Solution, deliver: Callable[[Iterable[Change]], None]) -> None:
        assert key not in self.wanted
        self.wanted[key] = deliver
        self.waiting.append(key)
        self.leaves.requests += 1

    def release(self, key: Solution) -> None:
        del self.wanted[key]

    def solutions(self, quads: Iterable[Quad]) -> Iterable[Solution]:
        for quad in quads:
            found = match(quad, self.pattern, self.schema, self.leaves.flow.dictionary)
            if found is not None:
                yield found

    def answer(self) -> bool:
        waiting, self.waiting = set(self.waiting), []
        for found in self.solutions(self.leaves.quads):
            if self.key(found) in waiting and self.key(found) in self.wanted:
                self.wanted[self.key(found)]([(found, 1)])
        return bool(waiting)


class LookupLeaves(Leaves):
    """Patterns that share variables with the seed are asked by key, others scanned.

    Answers come late, as from a server: call `settle`.

    Attributes:
        requests: number of requested keys.
        scanned: number of patterns read whole.
    """

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.quads: set[Quad] = set()
        self.requests = self.scanned = 0
        self._inputs: list[tuple[QuadPattern, Input]] = []
        self._unread: list[tuple[QuadPattern, Input]] = []
        self._sources: list[_Source] = []
        self._later: deque[Callable[[], object]] = deque()

    def defer(self, action: Callable[[], object]) -> None:
        """Do this when no change is being passed on."""
        self._later.append(action)

    def bgp(self, patterns: Sequence[QuadPattern], seed: Node | None) -> Node:
        node = seed
        for pattern in patterns:
            names = variables_of_quad(pattern)
            keys = tuple(name for name in names if node is not None and name in node.schema)
            if node is None or not keys:
                leaf = self.flow.add(Input(names))
                self._unread.append((pattern, leaf))
                self.scanned += 1
                node = leaf if node is None else self.flow.add(HashJoin(node, leaf))
            else:
                source = _Source(self, pattern, keys)
                self._sources.append(source)
                node = self.flow.add(LookupJoin(node, source, keys, names))
        wanted = tuple(dict.fromkeys(n for pattern in patterns for n in variables_of_quad(pattern)))
        assert node is not None
        return self.flow.add(Project(node, wanted))

    def change(self, quads: Iterable[Quad], count: int) -> None:
        """Quads appear (1) or vanish (-1)."""
        self.settle()
        for quad in quads:
            (self.quads.add if count > 0 else self.quads.remove)(quad)
            for pattern, leaf in self._inputs:
                self._read(quad, pattern, leaf, count)
            for source in self._sources:
                for found in source.solutions([quad]):
                    key = source.key(found)
                    if key in source.wanted and key not in source.waiting:
                        source.wanted[key]([(found, count)])
            while self._answer():
                pass

    def settle(self) -> None:
        """Answer all requests, and those that follow, and flush."""
        while True:
            self.flow.flush()
            if not self._answer():
                return

    def _read(self, quad: Quad, pattern: QuadPattern, leaf: Input, count: int) -> None:
        solution = match(quad, pattern, leaf.schema, self.flow.dictionary)
        if solution is not None:
            leaf.push(solution, count)

    def _answer(self) -> bool:
        unread, self._unread = self._unread, []
        for pattern, leaf in unread:
            self._inputs.append((pattern, leaf))
            for quad in self.quads:
                self._read(quad, pattern, leaf, 1)
        answered = [source.answer() for source in self._sources]
        if self._later:
            self._later.popleft()()
            return True
        return any(answered) or bool(unread)


class CountedLookups(LookupLeaves):
    """Lookups by leaves that know their counts, so computed values are keys, too."""

    counts = True

    def expected(self, patterns: Sequence[QuadPattern]) -> float:
        return float(len(patterns))
