"""The nodes of a dataflow, and how they are wired.

A dataflow is built bottom-up: a node is made from the nodes whose changes it consumes, and
connects its sinks to them. Afterwards whoever holds the `Input` nodes pushes changes; they run
through the sinks at once, as far as operators need not hold them back. `Dataflow.flush` says that
the inputs of this tick are complete; then the operators send what they held back. It may be called
more than once in a tick (where an answer only then caused new requests).
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from annotations.terms import QuadPattern, Variable
from tpf_client.dataflow.changes import Schema, Sink, Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.errors import LimitError
from tpf_client.sparql.algebra import Pattern
from tpf_client.sparql.expressions.environment import Environment

Key: TypeAlias = Solution
"""A key of rows: the values of `Node.key`, or something longer (see `KeyedJoin`)."""

_RowOf: TypeAlias = Callable[[Key], Solution | None]


def _never() -> bool:
    return False


def _nobody_listens(_solution: Solution, _count: int) -> None:
    pass


class Node:
    """A producer of changes.

    A node with at most one solution for each key may be *asked* instead of listened to. A group
    changes with nearly every solution, and most of its changes matter to nobody: a top-k looks at
    its best few only, a join at keys that both sides have. A change as a row that goes and one that
    comes costs each operator above twice. So such a node only notes which keys were touched, and
    whoever is above asks, at the flush, what the rows of those keys are now. Without such a reader
    it sends the differences itself, like every other.

    Attributes:
        schema: variables of its solutions, in their order.
        certain: those variables that are bound in every solution.
        monotone: whether, as long as its inputs only grow, so does its output; then what came out
            in a tick stays true for the rest of the tick.
        emit: sends a change to all who are connected (look it up when sending, it changes while
            the dataflow is built).
        expected: about how many solutions it will have; infinite: nobody knows.
        settled: whether what it holds back could be sent although inputs go on: nothing that is
            still to come in this tick will change it.
        keyed: whether it can be asked; only then it has what follows.
        key: the variables whose values make the keys; ``None`` where the schema lacks one of them.
        row: the row of a key as it is now, or ``None``.
        changed: the keys whose rows may have changed since this was last called, each once.
        all_keys: at least the keys that have a row, each once.
        loose: whether some key may lack a value.
    """

    monotone: bool
    settled: Callable[[], bool] = staticmethod(_never)
    # Functions, so that a node in between hands on those of the node below.
    row: _RowOf
    changed: Callable[[], Collection[Key]]
    all_keys: Callable[[], Iterable[Key]]
    loose: Callable[[], bool]

    def __init__(
        self,
        schema: Sequence[Variable],
        certain: frozenset[Variable],
        *,
        monotone: bool = True,
        keyed: bool = False,
        key: tuple[Variable, ...] | None = None,
    ) -> None:
        self.schema: Schema = tuple(schema)
        self.certain = certain
        self.monotone = monotone
        self.expected = math.inf
        self.emit: Sink = _nobody_listens
        self._sinks: list[Sink] = []
        self.keyed = keyed
        self.key = key
        self._below: Node | None = None
        self._claimed = False
        self._reported: dict[Key, Solution] = {}

    def limit(self, work: "Work") -> None:
        """Make no more rows than this allows; only nodes that may make many look at it."""

    def connect(self, sink: Sink) -> None:
        """Let `sink` receive every further change; to be called before the first change flows."""
        assert not self._claimed, "somebody asks for these rows"
        self._sinks.append(sink)
        if len(self._sinks) == 1:
            self.emit = sink
            return
        sinks = tuple(self._sinks)

        def fan_out(solution: Solution, count: int) -> None:
            for each in sinks:
                each(solution, count)

        self.emit = fan_out

    @property
    def pending(self) -> bool:
        """True if `flush` would send something now."""
        return self._below is not None and self._below.pending

    @property
    def leads_elsewhere(self) -> bool:
        """True if what it sends depends on nodes that are not among those before it."""
        return False

    @property
    def below(self) -> "Node | None":
        """The node from whose rows its own are made, one by one, when it is asked."""
        return self._below

    @property
    def askable(self) -> bool:
        """True if somebody may ask for its rows: nobody else asks for them, or listens."""
        return self.keyed and not self._claimed and not self._sinks

    @property
    def asked(self) -> bool:
        """True if somebody asks for its rows: then it sends none."""
        return self._claimed

    @property
    def holds(self) -> bool:
        """True if it ever holds something back that `flush` sends."""
        return (self.keyed and not self._claimed) or type(self).flush is not Node.flush

    def claimed(self) -> "Node":
        """This node, for the one who will ask for its rows."""
        assert self.askable, "somebody else asks for these rows, or listens to them"
        self._claimed = True
        return self

    def ask(self, source: "Node", row: _RowOf, key: tuple[Variable, ...] | None) -> None:
        """Be asked, too, for rows that are made of those of another node, each by itself."""
        self._below = source.claimed()
        self.keyed, self.key, self.row = True, key, row
        self.changed, self.all_keys, self.loose = source.changed, source.all_keys, source.loose

    def flush(self) -> None:
        """Send what was held back: what changed about the rows that nobody asks for."""
        if not self.keyed or self._claimed:
            return
        emit, sent, row_of = self.emit, self._reported, self.row
        for key in self.changed():
            now = row_of(key)
            before = sent.get(key)
            if now == before:
                continue
            if before is not None:
                emit(before, -1)
            if now is None:
                del sent[key]
            else:
                sent[key] = now
                emit(now, 1)

    def flush_some(self) -> bool:
        """Send what nothing will change any more, though inputs go on; whether there was any."""
        return False


class Input(Node):
    """An entry of changes: `push` is its sink.

    Args:
        schema: variables of the solutions.
        certain: variables that are always bound; ``None``: all of them.
        monotone: whether what was pushed in a tick is never taken back within it.
    """

    def __init__(
        self,
        schema: Sequence[Variable],
        certain: frozenset[Variable] | None = None,
        *,
        monotone: bool = True,
    ) -> None:
        super().__init__(
            schema, frozenset(schema) if certain is None else certain, monotone=monotone
        )

    def push(self, solution: Solution, count: int) -> None:
        """A solution of this schema appears (positive) or vanishes (negative), `count` times."""
        self.emit(solution, count)


class LimitedInput(Input):
    """An input that lets nothing in any more where that would make too many rows.

    Who pushes has others to push to, so that nobody is told but the work, which has ended then.
    """

    def __init__(
        self, schema: Sequence[Variable], certain: frozenset[Variable], work: "Work"
    ) -> None:
        super().__init__(schema, certain, monotone=False)
        self._work = work

    def push(self, solution: Solution, count: int) -> None:
        """See `Input`."""
        if not self._work.ended:
            try:
                self.emit(solution, count)
            except LimitError:
                self._work.end()


class Meter:
    """Counts the changes that leave a node, and how many solutions are there now.

    For explanations and tests: a node that nobody counts pays nothing, and one whose rows somebody
    asks for sends none.
    """

    def __init__(self, node: Node) -> None:
        self.changes = 0
        self.rows = 0
        if not node.asked:
            node.connect(self._count)

    def _count(self, _solution: Solution, count: int) -> None:
        self.changes += 1
        self.rows += count


NodeT = TypeVar("NodeT", bound=Node)


class Work:
    """How many rows joins may still make, or hold.

    Args:
        most: so many at once, for each query.
        exceeded: is called once, when that is not enough; ``None``: `ended` is looked at.
        guards: whether nodes behind joins of windows make rows, too.
        held: whether rows that go make room for others.

    Attributes:
        left: how many more; below 0 it is over for good.
        most: how many at once, for all queries.
        ended: whether it was exceeded.
    """

    __slots__ = ("_each", "_exceeded", "_held", "ended", "guards", "left", "most")

    def __init__(
        self,
        most: int,
        exceeded: Callable[[], None] | None = None,
        *,
        guards: bool = False,
        held: bool = False,
    ) -> None:
        self.left = self.most = self._each = most
        self.guards = guards
        self.ended = False
        self._held = held
        self._exceeded = exceeded

    def spend(self, rows: int) -> None:
        """So many rows are about to be made; fewer than 0: so many are about to go.

        Raises:
            LimitError: they are too many.
        """
        self.left -= rows if self._held else abs(rows)
        self.check()

    def check(self) -> None:
        """See to it that it is not exceeded.

        Raises:
            LimitError: it is.
        """
        if self.left < 0 or self.ended:
            raise LimitError(f"the joins of the query have more than {self.most} rows")

    def read(self, values: int) -> None:
        """So many values are read anew, for one value of an aggregate.

        Raises:
            LimitError: they are too many.
        """
        if not self._held:
            self.left -= values
        if min(self.left, self.most - values) < 0:
            raise LimitError(f"an aggregate of the query reads more than {self.most} values")

    def renew(self, rows: int) -> None:
        """So many more may be made, but no more than `most` at once."""
        if self.left >= 0:
            self.left = min(self.most, self.left + rows)

    def share(self, queries: int) -> None:
        """So many queries make these rows now."""
        more = self._each * max(1, queries) - self.most
        self.most += more
        if self.left >= 0:
            self.left = max(0, self.left + more)

    def end(self) -> None:
        """It was exceeded: from now on no row is made."""
        self.left = -1
        ended, self.ended = self.ended, True
        if self._exceeded is not None and not ended:
            self._exceeded()


class Dataflow:
    """All nodes of one query, in topological order, and the dictionary of their terms.

    Attributes:
        guard: sees every change before anybody else, and may raise an error to end the work; to be
            set before the first node is added.
        flushed: whether operators were made to send what they hold back. What was sent before stays
            true as long as inputs only grow.
    """

    def __init__(self, dictionary: TermDictionary) -> None:
        self.dictionary = dictionary
        self.nodes: list[Node] = []
        self.guard: Sink | None = None
        self.flushed = False

    def add(self, node: NodeT) -> NodeT:
        """Take in a node, after the nodes that it consumes; returns it."""
        self.nodes.append(node)
        # Nodes with a way of their own to connect only pass on what others send.
        if self.guard is not None and type(node).connect is Node.connect:
            node.connect(self.guard)
        return node

    def flush_growing(self) -> bool:
        """Let operators send what will not be taken back, although inputs may not be complete.

        Returns:
            Whether there was something to send.
        """
        moved = False
        for node in self.nodes:
            if not node.pending:
                continue
            if node.monotone or node.settled():
                node.flush()
                moved = True
            else:
                moved |= node.flush_some()
        return moved

    def flush(self) -> None:
        """The inputs are complete (for now): let every operator send what it held back.

        Repeats while there is something left, because property paths are cycles.
        """
        self.flushed = True
        while True:
            for node in self.nodes:
                node.flush()
            if not any(node.pending for node in self.nodes):
                return


class Leaves(Protocol):
    """The source of the matches of basic graph patterns.

    The planner over fragments, an engine over its windows and static data, a test over a graph in
    memory.
    """

    def bgp(self, patterns: Sequence[QuadPattern], seed: Node | None) -> Node:
        """A node of the solutions of these patterns, joined; never called without a pattern.

        Its schema holds every variable of the patterns (hidden ones, ``?.…``, included), each
        certainly bound. The node, and what it consists of, is already added to the dataflow.

        A variable in a graph position ranges over the *named* graphs only: solutions from the
        default graph must not come out there. `DEFAULT_GRAPH` is the default graph.

        Args:
            patterns: quad patterns, at least one.
            seed: where given, only solutions that agree with a present solution of this node are
                needed (a superset is fine: a join follows). Its schema is a non-empty subset of the
                patterns' variables, all certainly bound, every solution at most once.
        """


@dataclass(frozen=True, slots=True)
class EarlyFilter:
    """A filter that wants to run as soon as its variables are bound.

    Args:
        variables: what it looks at.
        attach: makes the node of those solutions of a node that fulfil it.
    """

    variables: frozenset[Variable]
    attach: Callable[[Node], Node]


@runtime_checkable
class CountingLeaves(Leaves, Protocol):
    """Leaves that know about how much there is, and can do with less than all of it."""

    def expected(self, patterns: Sequence[QuadPattern]) -> float:
        """About how many solutions these patterns have."""

    def mark(self) -> int:
        """A moment, for `limit`, `not_hurried` and `at_rest`."""

    def limit(
        self,
        since: int,
        missing: Callable[[], int | None],
        *,
        grows: bool = True,
        grows_but_for_absence: bool = True,
    ) -> None:
        """Only so much is needed of what was built since then that no solution is missing.

        Args:
            since: see `mark`.
            missing: how many are missing.
            grows: whether further facts surely take none away.
            grows_but_for_absence: whether only those do that OPTIONAL, MINUS and EXISTS find.
        """

    def not_hurried(self, since: int) -> None:
        """Nothing comes out before all of what was built since then has come in."""

    def spare(self, since: int, pattern: Pattern, node: "Node", environment: Environment) -> None:
        """Note that what was built since is for a SELECT, which may not need all of it."""

    def known(self, since: int) -> tuple[Schema, Callable[[Solution], bool]] | None:
        """Tells of a single seed whether everything has come that was built for it since then.

        Returns:
            The variables of the seed, and a function that tells it of their values; ``None``:
            that is not known.
        """

    def at_rest(self, since: int) -> Callable[[], bool]:
        """Tells whether what was built since then, until now, has answered all it was asked.

        Never, where answers may be taken back.
        """


@runtime_checkable
class FilteringLeaves(Leaves, Protocol):
    """Leaves that can filter between two patterns, before they look for more."""

    def filtered_bgp(
        self, patterns: Sequence[QuadPattern], seed: Node | None, conditions: Sequence[EarlyFilter]
    ) -> Node:
        """Like `bgp`, for those solutions that fulfil all conditions."""
