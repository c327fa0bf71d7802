"""Build the dataflow of operators: those of SPARQL, and the aggregation of C-SPARQL."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from math import prod
from operator import itemgetter
from typing import Any

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.build.builder import build_output
from tpf_client.dataflow.build.modifiers_builder import Modified, argument_of
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.node import Dataflow, LimitedInput, Node, Work
from tpf_client.dataflow.operators.basic import Compute, Output, Project
from tpf_client.dataflow.operators.hash_join import HashJoin, put
from tpf_client.dataflow.state.aggregates import Accumulator, accumulator, limit_accumulators
from tpf_client.errors import LimitError
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import (
    Aggregated,
    Expression,
    Pattern,
    variables_of_bgp,
    variables_of_quad,
)
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.inlined import inline_integer
from tpf_client.sparql.rewrite.join_order import greedy_order
from tpf_client.sparql.rewrite.visitor import combined, movable, operands
from tpf_client.sparql.scopes import in_scope
from tpf_server.continuous.runtime.instants.contents import WindowView
from tpf_server.continuous.runtime.instants.csparql_query import place_of
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph
from tpf_server.continuous.runtime.plans.stamps import (
    STAMP,
    StampedBuilder,
    StampedLeaves,
    hidden_stamp,
)
from tpf_server.continuous.runtime.static.static_data import Dataset, StaticData
from tpf_server.continuous.runtime.static.static_rows import (
    LOOKUP_COST,
    SharedRows,
    StaticIndex,
    StaticRows,
)
from tpf_server.continuous.runtime.windows.matchers import (
    EncodedTriple,
    TripleMatcher,
    number_variables,
)

# What matches a triple pattern, in static graphs and in windows, as rows of a dataflow.


class PatternInput:
    """The matches of a triple pattern in a graph, static and in windows."""

    def __init__(
        self,
        matcher: TripleMatcher,
        row_of: Callable[[EncodedTriple], Solution | None],
        rows: StaticRows | None,
        windows: Sequence[WindowView],
        timed: Sequence[WindowView] | None,
        push: Callable[[Solution, int], None],
        *,
        stamped: bool = False,
    ) -> None:
        self._matcher = matcher
        self._row_of = row_of
        self.rows = rows
        self._static: Mapping[Solution, int] = {} if rows is None else rows.all
        self._windows = list(windows)
        self._timed = None if timed is None else list(timed)
        self._stamped = stamped
        self._push = push
        for window in self._windows:
            others = tuple(each for each in self._windows if each is not window)
            window.listen(matcher.mask, partial(self._window_change, window, others))

    def follow(self, position: int) -> None:
        assert self.rows is not None
        self.rows.read()
        self.rows.users[self] = position

    def open(self) -> None:
        for row in self._static:
            self.static_change(row, 1)

    def fill(self) -> None:
        mask = self._matcher.mask
        for triple in {each for window in self._windows for each in window.triples()}:
            fits = all(c is None or c == term for c, term in zip(mask, triple, strict=False))
            row = self._row_of(triple) if fits else None
            if row is not None:
                now = self._state(triple, static=row in self._static)
                self._change(row, (False, None), now)

    def static_change(self, row: Solution, count: int) -> None:
        triple = self._matcher.triple(row)
        before = self._state(triple, static=count < 0)
        self._change(row, before, self._state(triple, static=count > 0))

    def _window_change(
        self,
        window: WindowView,
        others: tuple[WindowView, ...],
        triple: EncodedTriple,
        old: int | None,
        new: int | None,
    ) -> None:
        row = self._row_of(triple)
        if row is None:
            return
        static = row in self._static
        if self._timed is not None:
            if self._timed == [window] and not others and not static:
                self._change(row, (old is not None, old), (new is not None, new))
                return
            before = self._state(triple, static=static, window=window, at=old)
            self._change(row, before, self._state(triple, static=static, window=window, at=new))
            return
        always = static or (others and any(each.latest(triple) is not None for each in others))
        if (old is None) != (new is None) and not always:
            self._push(row, 1 if old is None else -1)

    def _state(
        self,
        triple: EncodedTriple,
        *,
        static: bool,
        window: WindowView | None = None,
        at: int | None = None,
    ) -> tuple[bool, int | None]:
        """Whether a triple is there, and its stamp, where `at` is its timestamp in a window."""

        def latest(windows: Iterable[WindowView]) -> int | None:
            found = [at if each is window else each.latest(triple) for each in windows]
            return max([each for each in found if each is not None], default=None)

        if static and self._stamped:
            # All queries see it.
            return True, None
        present = static or latest(self._windows) is not None
        return present, None if self._timed is None else latest(self._timed)

    def _change(
        self, row: Solution, old: tuple[bool, int | None], new: tuple[bool, int | None]
    ) -> None:
        if old == new:
            return
        for (present, stamp), count in ((old, -1), (new, 1)):
            if present:
                if self._timed is None:
                    self._push(row, count)
                else:
                    encoded = 0 if stamp is None else encode_stamp(stamp)
                    self._push((*row, encoded), count)


# A join with static rows, which it looks up.


class StaticJoin(HashJoin):
    """A join with static rows and a further set; rows in both count once.

    Where the rows of the set end with stamps, those that are static are as if they had none.
    """

    _static: StaticIndex

    def __init__(
        self, left: Node, right: Node, rows: StaticRows, most: int, *, stamped: bool = False
    ) -> None:
        super().__init__(left, right)
        shared = self._layout.shared
        assert shared
        assert not self._layout.loose
        schema = right.schema[:-1] if stamped else right.schema
        self._row = slice(0, -1) if stamped else slice(None)
        self._no_stamp = (0,) if stamped else ()
        self.rows = rows
        self._most = most
        self._places = (
            tuple(schema.index(name) for name in shared),
            tuple(index for index, name in enumerate(schema) if name not in left.schema),
        )

    def follow(self, position: int) -> None:
        self.rows.read(self._most)
        self._static = self.rows.index(self._places, self, position)

    @property
    def keys(self) -> Collection[Any]:
        return self._left.keys()

    def _push_left(self, solution: Solution, count: int) -> None:
        key = self._left_key(solution)
        static = self._static[key]
        put(self._left, key, solution, count)
        self.probes += 1
        emit = self.emit
        beside = self._right.get(key)
        self._spend(count * (len(static) + len(beside or ())))
        for rest in static:
            emit(solution + rest + self._no_stamp, count)
        for rest in beside or ():
            if rest[self._row] not in static:
                emit(solution + rest, count)

    def _push_right(self, solution: Solution, count: int) -> None:
        key = self._right_key(solution)
        rest = self._rest(solution)
        put(self._right, key, rest, count)
        self.probes += 1
        partners = self._left.get(key)
        if partners:
            self._spend(count * sum(partners.values()))
        if partners and rest[self._row] not in self._static[key]:
            emit = self.emit
            for partner, times in partners.items():
                emit(partner + rest, count * times)

    def static_change(self, key: Any, rest: Solution, count: int) -> None:
        partners = self._left.get(key)
        if not partners:
            return
        try:
            self._spend(count * sum(partners.values()))
            beside = self._right.get(key, ())
            changes = [] if rest in beside else [(rest + self._no_stamp, count)]
            if self._no_stamp:
                changes += [(each, -count) for each in beside if each[:-1] == rest]
            emit = self.emit
            for each, added in changes:
                for partner, times in partners.items():
                    emit(partner + each, added * times)
        except Exception as error:  # noqa: BLE001 - others are told of this change, too
            assert self._work is not None
            self._work.fail(error)

    def _spend(self, rows: int) -> None:
        if self._work is not None:
            self._work.spend(rows)


_WINDOW_ESTIMATE = 100
"""How many triples a window is taken to hold that match a pattern."""
_STATIC_LEAST, _STATIC_MOST = 100_000, 8
"""How many rows a static part may have: so many, and these times as many as it has triples."""
_FEW, _MANY = 1_000, 100_000
"""Of so many static triples all are read at once, even if only some are looked up: by static rows,
which is done once, and by rows of streams, where each look-up makes an element cost more."""


class TooManyStaticError(Exception):
    """A static part has far more rows than triples, and should not be kept."""


class _Bound:
    """Stop a static part that grows too large."""

    def __init__(self, most: int) -> None:
        self.left: int | None = most

    def take(self, _row: object, count: int) -> None:
        if self.left is not None:
            self.left -= count
            if self.left < 0:
                raise TooManyStaticError


class CsparqlLeaves(StampedLeaves):
    """Make the leaves of one query.

    Attributes:
        predicates: of triples that may match; ``None``: any.
        stamped: solutions have stamps: queries have `numbers`.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        windows: Mapping[Term, WindowView],
        static: StaticData,
        shared_rows: SharedRows,
        flow: Dataflow,
        work: Work,
        numbers: list[int] | None,
    ) -> None:
        self.numbers = [] if numbers is None else numbers
        self.stamped = numbers is not None
        self._graph = graph
        self._work = work
        self._known = 0
        self._windows = windows
        self._static = static
        self._shared_rows = shared_rows
        self._flow = flow
        self._dictionary = flow.dictionary
        self._inputs: list[PatternInput] = []
        self._following: list[PatternInput | StaticJoin] = []
        self.predicates: set[TermId] | None = set()
        self._bounds: list[_Bound] = []

    def open(self) -> None:
        """Follow the static data, and push the content of windows.

        Static rows are free while there are not many times more than triples.
        """
        work = self._work
        work.left = work.most + _STATIC_MOST * self._known
        for index, each in enumerate(self._following):
            each.follow(index)
        for entry in self._inputs:
            entry.open()
        for bound in self._bounds:
            bound.left = None
        work.check()
        work.left = work.most
        for entry in self._inputs:
            entry.fill()

    def close(self) -> None:
        for each in self._following:
            if each.rows is not None:
                each.rows.leave(each)
                self._shared_rows.drop(each.rows)

    def bgp(self, patterns: Sequence[QuadPattern], seed: Node | None) -> Node:  # noqa: ARG002
        """Join patterns (see `tpf_client.dataflow.node.Leaves`); a seed is not used."""
        estimates = {each: self._estimate(each) for each in patterns}
        self._known += sum(map(self._count, patterns))
        node: Node | None = None
        alone = all(self._graph.part_of(each) == "static" for each in patterns)
        most = _FEW if alone else _MANY
        for pattern in greedy_order(estimates, variables_of_quad, lambda each, _: estimates[each]):
            if node is None:
                # Where so many rows begin, looking up for each costs more than reading so much.
                most = max(most, LOOKUP_COST * estimates[pattern])
            node = self._joined(node, pattern, most)
            if alone:
                bound = _Bound(_STATIC_LEAST + _STATIC_MOST * sum(estimates.values()))
                self._bounds.append(bound)
                node.connect(bound.take)
        assert node is not None
        schema = (*variables_of_bgp(tuple(patterns)), *filter(hidden_stamp, node.schema))
        return node if node.schema == schema else self._flow.add(Project(node, schema))

    def check_product(self, patterns: Iterable[QuadPattern]) -> None:
        """Check that patterns without common variables have no large product."""
        counts = [max(1, self._count(each)) for each in patterns]
        most = self._work.most + _STATIC_MOST * sum(counts)
        if prod(counts) > most:
            raise LimitError(f"the static patterns of the query have more than {most} rows")

    def _count(self, pattern: QuadPattern) -> int:
        source = self._graph.source_of(pattern)
        if not source.static:
            return 0
        plain = pattern._replace(graph=DEFAULT_GRAPH)
        return Dataset(self._static, source.static).count(plain)

    def _estimate(self, pattern: QuadPattern) -> int:
        count = self._count(pattern)
        if self._graph.part_of(pattern) != "static":
            free = sum(is_variable(term) for term in pattern[:3])
            count += _WINDOW_ESTIMATE * free
        return count

    def _joined(self, node: Node | None, pattern: QuadPattern, most: int) -> Node:
        """Join one more pattern; up to `most` static triples are read whole."""
        source = self._graph.source_of(pattern)
        schema = variables_of_bgp((pattern,))
        timed: list[WindowView] | None = None
        certain = frozenset(schema)
        carrying = self._graph.part_of(pattern) != "static"
        windows = [self._windows[stream] for stream in source.streams] if carrying else []
        named = place_of(pattern.graph) is not None
        if is_variable(pattern.graph) and not named:
            stamp = self._graph.stamps[Variable(pattern.graph)]
            timed = [self._windows[stream] for stream in stamp.streams]
            certain -= {Variable(pattern.graph)}
        stamped = self.stamped and carrying
        if stamped:
            schema = (*schema, Variable(f"{STAMP}{len(self._inputs)}"))
            timed = windows
        leaf = self._flow.add(LimitedInput(schema, certain, self._work))
        matcher = TripleMatcher(number_variables([pattern], self._dictionary)[0])
        row_of = _in_graph(matcher.row) if named else matcher.row
        # Also of what is taken to be static, so that a window holds enough for any plan.
        if is_variable(pattern.predicate):
            self.predicates = None if source.streams else self.predicates
        else:
            predicate = self._dictionary.encode(Term(pattern.predicate))
            if source.streams and self.predicates is not None:
                self.predicates.add(predicate)
        rows: StaticRows | None = None
        if source.static and not named:
            # In the named graphs of a window there is nothing static.
            plain = pattern._replace(graph=DEFAULT_GRAPH)
            dataset = Dataset(self._static, source.static)
            rows = self._shared_rows.shared(StaticRows(dataset, [plain], self._dictionary))
        if node is None:
            joined: Node = leaf
        elif rows is not None and (timed is None or stamped) and _meets(node, schema):
            join = StaticJoin(node, leaf, rows, most, stamped=stamped)
            joined = self._flow.add(join)
            self._following.append(join)
            rows = None
        else:
            joined = self._flow.add(HashJoin(node, leaf))
        entry = PatternInput(matcher, row_of, rows, windows, timed, leaf.push, stamped=stamped)
        if rows is not None:
            self._following.append(entry)
        self._inputs.append(entry)
        return joined


def _in_graph(
    row_of: Callable[[EncodedTriple], Solution | None],
) -> Callable[[EncodedTriple], Solution | None]:
    """The same of triples with their graph, which is the last column."""

    def row(triple: Sequence[int]) -> Solution | None:
        graph = triple[3]
        result = row_of(triple) if graph else None  # type: ignore[arg-type]
        return None if result is None else (*result, graph)

    return row


def _meets(node: Node, schema: Sequence[Variable]) -> bool:
    shared = set(schema) & set(node.schema)
    return bool(shared) and shared <= node.certain


def has_static(static: StaticData, pattern: QuadPattern, graphs: tuple[Term, ...]) -> bool:
    """True where a triple of these static graphs matches."""
    dataset = Dataset(static, graphs)
    return next(dataset.match(pattern._replace(graph=DEFAULT_GRAPH)), None) is not None


def encode_stamp(stamp: int) -> int:
    """Return the integer of a timestamp, or of a stamp, as a term."""
    encoded = inline_integer(stamp)
    assert encoded is not None
    return encoded


# The operator of the AGGREGATE clause: solutions extended by the aggregate of their group.


class _Group:
    __slots__ = ("accumulator", "changes", "members", "shown")

    def __init__(self, accumulator: Accumulator) -> None:
        self.accumulator = accumulator
        self.members: dict[Solution, int] = {}
        self.changes: dict[Solution, int] = {}
        self.shown: TermId | None = None


class Aggregation(Node):
    """Add the aggregate of all solutions with the same key.

    A change costs the size of its group, unless the aggregate stays the same.
    """

    def __init__(
        self,
        upstream: Node,
        variable: Variable,
        keys: Sequence[int],
        argument: Compute,
        make: Callable[[], Accumulator],
    ) -> None:
        super().__init__((*upstream.schema, variable), upstream.certain, monotone=False)
        self._keys = tuple(keys)
        self._argument = argument
        self._make = make
        self._groups: dict[Solution, _Group] = {}
        self._touched: dict[Solution, _Group] = {}
        self._work: Work | None = None
        upstream.connect(self._push)

    def limit(self, work: Work) -> None:
        self._work = work

    @property
    def pending(self) -> bool:
        return bool(self._touched)

    def _push(self, solution: Solution, count: int) -> None:
        key = tuple([solution[index] for index in self._keys])
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(self._make())
            if self._work is not None:
                limit_accumulators((group.accumulator,), self._work)
        group.accumulator.add(self._argument(solution), count)
        group.changes[solution] = group.changes.get(solution, 0) + count
        self._touched[key] = group

    def flush(self) -> None:
        """Emit the members whose aggregate changed, and those that changed."""
        touched, self._touched = self._touched, {}
        emit = self.emit
        for key, group in touched.items():
            members, changes = group.members, group.changes
            group.changes = {}
            before = group.shown
            now = group.accumulator.result()
            group.shown = now
            if before is not None and now != before:
                for solution, count in members.items():
                    emit((*solution, before), -count)
            for solution, count in changes.items():
                total = members.get(solution, 0) + count
                if total:
                    members[solution] = total
                else:
                    members.pop(solution, None)
                if now == before and count:
                    emit((*solution, now), count)
            if now != before:
                for solution, count in members.items():
                    emit((*solution, now), count)
            if not members:
                del self._groups[key]


def build(
    query: algebra.Query,
    leaves: CsparqlLeaves,
    flow: Dataflow,
    environment: Environment,
    static: Callable[[QuadPattern], bool] = lambda _: False,
    gap: tuple[Pattern, Node] | None = None,
) -> Output:
    """Build the dataflow of a query, or what is above a gap in it."""
    builder = CsparqlBuilder(leaves, flow, environment, static, gap)
    # The default graph is what FROM says already, also for descriptions.
    query = replace(query, dataset=algebra.DatasetClause())
    return build_output(builder, query, query.pattern)


class CsparqlBuilder(StampedBuilder):
    """Build nodes for patterns, aggregations included."""

    leaves: CsparqlLeaves

    def __init__(
        self,
        leaves: CsparqlLeaves,
        flow: Dataflow,
        environment: Environment,
        static: Callable[[QuadPattern], bool],
        gap: tuple[Pattern, Node] | None,
    ) -> None:
        super().__init__(leaves, flow, environment)
        self._static = static
        self._gap = gap

    def build(self, pattern: Pattern, seed: Node | None) -> Node:
        if self._gap is not None and pattern is self._gap[0]:
            return self._gap[1]
        if isinstance(pattern, Aggregated):
            return self._aggregation(pattern)
        if isinstance(pattern, algebra.BGP) and pattern.patterns:
            self._check_product([algebra.BGP((each,)) for each in pattern.patterns])
            return self._correlated(self.leaves.bgp(pattern.patterns, None))
        return super().build(pattern, seed)

    def _join(self, pattern: Pattern, seed: Node | None) -> Node:
        folded = self._folded(pattern)
        self._check_product(operands(folded))
        if not isinstance(folded, algebra.Join):
            return self.build(folded, seed)
        return super()._join(folded, seed)

    def _check_product(self, parts: Sequence[Pattern]) -> None:
        scopes = Counter(name for part in parts for name in set(in_scope(part)))
        alone: list[QuadPattern] = []
        for part in parts:
            inner = part
            while isinstance(inner, algebra.Project):
                inner = inner.input
            shares = any(scopes[name] > 1 for name in in_scope(part))
            if isinstance(inner, algebra.BGP) and len(inner.patterns) == 1 and not shares:
                alone += inner.patterns
        self.leaves.check_product(alone)

    def _folded(self, pattern: Pattern) -> Pattern:
        """Move single static patterns to what they join: there they are looked up, not copied."""
        single: list[algebra.BGP] = []
        blocks: list[Pattern] = []
        conditions: list[Expression] = []
        for each in operands(pattern):
            inner, own = each, []
            while isinstance(inner, algebra.Filter) and movable(inner.condition):
                own.append(inner.condition)
                inner = inner.input
            if (
                isinstance(inner, algebra.BGP)
                and len(inner.patterns) == 1
                and self._is_static(inner)
            ):
                single.append(inner)
                conditions += own
            else:
                blocks.append(each)
        for one in single:
            names = set(in_scope(one))
            near = [
                (self._is_static(block), index, block)
                for index, block in enumerate(blocks)
                if isinstance(block, algebra.BGP) and not names.isdisjoint(in_scope(block))
            ]
            if near:
                _, index, block = min(near, key=itemgetter(0, 1))
                blocks[index] = algebra.BGP((*block.patterns, *one.patterns))
            else:
                blocks.append(one)
        return reduce(algebra.Filter, conditions, combined(blocks))

    def _is_static(self, bgp: algebra.BGP) -> bool:
        return all(map(self._static, bgp.patterns))

    def stamps(self, pattern: Pattern) -> bool:
        return self.leaves.stamped and any(
            isinstance(each, algebra.BGP) and not self._is_static(each)
            for each in algebra.walk(pattern)
        )

    def modified(self, pattern: Pattern, seed: Node | None) -> Modified:
        """Stamps are variables of the result, too."""
        result = super().modified(pattern, seed)
        stamps = filter(hidden_stamp, result.node.schema)
        return result._replace(variables=(*result.variables, *stamps))

    def sideways(self, node: Node, pattern: Pattern) -> Node | None:
        if any(isinstance(each, algebra.Path) for each in algebra.walk(pattern)):
            return super().sideways(node, pattern)
        return None

    def _aggregation(self, pattern: Aggregated) -> Node:
        # Whole groups are needed: nothing may be left out by what they are joined with.
        node = self.build(pattern.input, None)
        keys = [node.schema.index(name) for name in pattern.keys if name in node.schema]
        aggregation = Aggregation(
            node,
            pattern.variable,
            keys,
            argument_of(pattern.aggregate, node.schema, self.compiler(node).binding),
            accumulator(pattern.aggregate, self.environment.typed),
        )
        return self.flow.add(aggregation)
