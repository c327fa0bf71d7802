"""The nodes of a dataflow, and how they are wired.

Changes pushed into `Input` nodes run through at once; operators send what they held back at
`Dataflow.flush`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from annotations.terms import QuadPattern, Variable
from tpf_client.dataflow.changes import Schema, Sink, Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.errors import LimitError
from tpf_client.sparql.algebra import Pattern

Key: TypeAlias = Solution
"""A key of rows: the values of `Node.key`, or something longer (see `KeyedJoin`)."""

_RowOf: TypeAlias = Callable[[Key], Solution | None]


def _never() -> bool:
    return False


def _nobody_listens(_solution: Solution, _count: int) -> None:
    pass


class Node:
    """A producer of changes.

    A *keyed* node has at most one solution per key and may be asked: it notes the touched keys
    (`changed`), and its reader asks for their rows (`row`) at the flush.

    Attributes:
        certain: variables bound in every solution.
        monotone: the output only grows as long as the inputs do, within a tick.
        emit: sends a change to all consumers; look it up when sending.
        expected: estimated number of solutions; infinite: unknown.
        settled: nothing still to come in this tick changes what it holds back.
        key: the variables of the keys; ``None`` where the schema lacks one of them.
        all_keys: at least the keys that have a row, each once.
        loose: some key may lack a value.
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
        """Make no more rows than this allows."""

    def connect(self, sink: Sink) -> None:
        """Let `sink` receive every further change; before the first change flows."""
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
        return self._below is not None and self._below.pending

    @property
    def leads_elsewhere(self) -> bool:
        """True if its output depends on nodes not among those before it."""
        return False

    @property
    def below(self) -> "Node | None":
        """The node of whose rows its own are made, when asked."""
        return self._below

    @property
    def askable(self) -> bool:
        """True if it can be asked, and nobody else asks or listens."""
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
        """Return this node, for the one who will ask for its rows."""
        assert self.askable, "somebody else asks for these rows, or listens to them"
        self._claimed = True
        return self

    def ask(self, source: "Node", row: _RowOf, key: tuple[Variable, ...] | None) -> None:
        """Be asked, too, for rows made of single rows of another node."""
        self._below = source.claimed()
        self.keyed, self.key, self.row = True, key, row
        self.changed, self.all_keys, self.loose = source.changed, source.all_keys, source.loose

    def flush(self) -> None:
        """Send what was held back: changes of rows that nobody asks for."""
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
        """Send what is final although inputs go on; return success."""
        return False


class Input(Node):
    """An entry of changes: `push` is its sink.

    `monotone`: nothing pushed in a tick is retracted within it.
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
        """Add (positive) or retract (negative) `count` copies of a solution."""
        self.emit(solution, count)


class LimitedInput(Input):
    """An input that closes when it would make too many rows."""

    def __init__(
        self, schema: Sequence[Variable], certain: frozenset[Variable], work: "Work"
    ) -> None:
        super().__init__(schema, certain, monotone=False)
        self._work = work

    def push(self, solution: Solution, count: int) -> None:
        if not self._work.ended:
            try:
                self.emit(solution, count)
            except Exception as error:  # noqa: BLE001 - it ends this query, and no other
                self._work.fail(error)


class Meter:
    """Count a node's changes and current solutions, for explanations and tests."""

    def __init__(self, node: Node) -> None:
        self.changes = 0
        self.rows = 0
        if not node.asked:
            node.connect(self._count)

    def _count(self, _solution: Solution, count: int) -> None:
        self.changes += 1
        self.rows += count


NodeT = TypeVar("NodeT", bound=Node)


CHARACTERS: Final = 64
"""Characters that expressions may read for each row that joins may make."""
_AT_ONCE: Final = 4
"""One function reads no more than such a part of them."""


class Work:
    """The budget of rows that joins may still make at once, or hold.

    `exceeded` is called once; with `guards` nodes behind joins of windows count, too. `failure` is
    the error of a row that was not expected.
    """

    __slots__ = (
        "_each",
        "_exceeded",
        "_held",
        "_text",
        "ended",
        "failure",
        "guards",
        "left",
        "most",
        "reason",
    )

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
        self.reason: str | None = None
        self.failure: Exception | None = None
        self._text = CHARACTERS * most
        self._held = held
        self._exceeded = exceeded

    def spend(self, rows: int) -> None:
        """Spend rows about to be made (negative: about to go); `LimitError` if too many."""
        self.left -= rows if self._held else abs(rows)
        self.check()

    def check(self) -> None:
        """Raise a `LimitError` if the budget is exceeded."""
        if self.left < 0 or self.ended:
            raise LimitError(
                self.reason or f"the joins of the query have more than {self.most} rows"
            )

    def read(self, values: int, characters: int) -> None:
        """Count values, and their characters, read again for an aggregate; see `check`."""
        self.read_text(characters)
        if not self._held:
            self.left -= values
        if min(self.left, self.most - values) < 0:
            self.reason = f"an aggregate of the query reads more than {self.most} values"
            raise LimitError(self.reason)

    def read_text(self, characters: int) -> None:
        """Count characters that expressions read, or work that takes as long; see `check`."""
        self._text -= characters
        if self._text < 0 or characters * _AT_ONCE > CHARACTERS * self.most:
            most = CHARACTERS * self.most
            if not self.ended:
                self.reason = f"the query's expressions read more than {most} characters at once"
            raise LimitError(self.reason or "")

    def renew(self, rows: int) -> None:
        """Allow so many more rows, at most `most` at once."""
        if self.left >= 0:
            self.left = min(self.most, self.left + rows)
            self._text = min(CHARACTERS * self.most, self._text + CHARACTERS * rows)

    def begin(self) -> None:
        """Let expressions read as much as at first."""
        if not self.ended:
            self._text = CHARACTERS * self.most

    def share(self, queries: int) -> None:
        more = self._each * max(1, queries) - self.most
        self.most += more
        if self.left >= 0:
            self.left = max(0, self.left + more)
            self._text = max(0, self._text + CHARACTERS * more)

    def fail(self, error: Exception) -> None:
        """End because a row raised; `failure` is what is no `LimitError`."""
        if not isinstance(error, LimitError):
            self.failure = self.failure or error
        self.end()

    def end(self) -> None:
        """Mark the budget exceeded: from now on no row is made."""
        self.left = self._text = -1
        ended, self.ended = self.ended, True
        if self._exceeded is not None and not ended:
            self._exceeded()


class Dataflow:
    """All nodes of one query, in topological order, and their term dictionary."""

    def __init__(self, dictionary: TermDictionary, guard: Sink | None = None) -> None:
        self.dictionary = dictionary
        self.nodes: list[Node] = []
        self.guard = guard
        self.flushed = False

    def add(self, node: NodeT) -> NodeT:
        """Add a node after those that it consumes; return it."""
        self.nodes.append(node)
        # Nodes with a way of their own to connect only pass on what others send.
        if self.guard is not None and type(node).connect is Node.connect:
            node.connect(self.guard)
        return node

    def flush_growing(self) -> bool:
        """Send what is final although inputs may be incomplete; return success."""
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
        """Declare the inputs complete (for now): flush every operator.

        Repeats while something is left, because property paths are cycles.
        """
        self.flushed = True
        while True:
            for node in self.nodes:
                node.flush()
            if not any(node.pending for node in self.nodes):
                return


@dataclass(frozen=True, slots=True)
class EarlyFilter:
    """A filter that can run as soon as its variables are bound."""

    variables: frozenset[Variable]
    attach: Callable[[Node], Node]


class Leaves:
    """The source of matches of basic graph patterns.

    Leaves that have *counts* can also stop before all has been read.
    """

    counts = False

    def bgp(self, patterns: Sequence[QuadPattern], seed: Node | None) -> Node:
        """Build the joined solutions of at least one pattern, in the dataflow.

        All variables are certainly bound; a graph variable ranges over *named* graphs only. A
        `seed` restricts the solutions needed.
        """
        raise NotImplementedError

    def expected(self, patterns: Sequence[QuadPattern]) -> float:  # noqa: ARG002
        """About how many solutions these patterns have."""
        # Without counts, what is not a union or an optional part comes first.
        return 0.0

    def filtered_bgp(
        self, patterns: Sequence[QuadPattern], seed: Node | None, conditions: Sequence[EarlyFilter]
    ) -> Node:
        """Match patterns as `bgp` does, and keep solutions that fulfil all conditions."""
        node = self.bgp(patterns, seed)
        for each in conditions:
            node = each.attach(node)
        return node

    def mark(self) -> int:
        """A moment, for `limit`, `not_hurried` and `at_rest`."""
        return 0

    def limit(
        self,
        since: int,
        missing: Callable[[], int | None],
        *,
        grows: bool = True,
        grows_but_for_absence: bool = True,
    ) -> None:
        """Read only as much for the nodes built since `mark` as leaves no solution missing.

        `grows`: further facts take none away; `grows_but_for_absence`: only those of OPTIONAL,
        MINUS and EXISTS do.
        """

    def not_hurried(self, since: int) -> None:
        """Hold back what was built since then until all its input has come."""

    def spare(self, since: int, pattern: Pattern, node: "Node") -> None:
        """Note that what was built since then serves a SELECT that may need less."""

    def seed_test(
        self,
        since: int,  # noqa: ARG002
    ) -> tuple[Schema, Callable[[Solution], bool]] | None:
        """Return a seed's variables and a test of their values: has everything come for it?

        ``None``: unknown.
        """
        return None

    def at_rest(self, since: int) -> Callable[[], bool]:  # noqa: ARG002
        """Return a test for all requests answered; false where answers may be retracted."""
        return lambda: False
