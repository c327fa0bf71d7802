"""The leaves of a continuous query: joins of windows and static rows."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from annotations.terms import QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import Schema, Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Node, Work
from tpf_client.dataflow.operators.multiway_join import MultiwayJoin, Routing
from tpf_client.dataflow.state.row_index import JoinCondition, JoinInput, RowBag
from tpf_client.sparql.algebra import BGP, Expression, Pattern, variables_of_quad
from tpf_client.sparql.expressions.compiler import Compiler
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.rewrite.join_order import components
from tpf_client.sparql.rewrite.visitor import counts_whole_rows, everything, occurrences
from tpf_client.sparql.scopes import variables_in
from tpf_server.continuous.runtime.delivery import wanted_variables
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.plans.stamps import STAMP, StampedLeaves
from tpf_server.continuous.runtime.semantics import Semantics
from tpf_server.continuous.runtime.shared import Shared
from tpf_server.continuous.runtime.static.static_data import Dataset
from tpf_server.continuous.runtime.static.static_rows import (
    INSTANCE,
    SLICE,
    SharedRows,
    StaticInput,
    StaticRows,
)
from tpf_server.continuous.runtime.windows.continuous_query import (
    ContinuousQuery,
    WindowClause,
    named_stream,
)
from tpf_server.continuous.runtime.windows.matchers import PatternKey, is_star, number_variables
from tpf_server.continuous.runtime.windows.specification import All, Triples
from tpf_server.continuous.runtime.windows.window_input import WindowInput
from tpf_server.continuous.runtime.windows.window_registry import WindowRegistry

# The windows of every stream as one input of a join, with a column for the stream.
#
# Each stream has a window of its own, with its own time; streams may come and go. Source: paper
# 000, section 4.1 (``STREAM`` over a variable).


class StreamUnion:
    """The rows of some patterns in the windows of all streams.

    Args:
        stream: the variable that is the stream; it may be one of the others, too.
        since: the number of the query: of stamped rows it sees those that came since.
    """

    def __init__(
        self,
        clause: WindowClause,
        key: PatternKey,
        label: str,
        names: Schema,
        stream: Variable,
        since: int,
    ) -> None:
        self.clause = clause
        self.key = key
        self.since = since
        self.branches: dict[Term, StreamBranch] = {}
        # Where it is a variable of the patterns, the column of this must agree.
        self.agrees = names.index(stream) if stream in names else None
        schema = names if stream in names else (*names, stream)
        self.column = schema.index(stream)
        # What a window keeps is not kept again.
        source = None if isinstance(clause.window, All) else self._present
        self.bag = RowBag(len(schema), source)
        self.recent: deque[Solution] = deque(maxlen=32)
        self.entry = JoinInput(
            label, schema, lambda: self.bag, lambda: self.size, lambda: tuple(self.recent)
        )

    @property
    def size(self) -> int:
        return sum([branch.window.held for branch in self.branches.values()])

    def of(self, stream: Term) -> WindowClause:
        return replace(self.clause, stream=stream)

    def add(self, stream: Term, number: TermId, window: WindowInput) -> "StreamBranch":
        branch = self.branches[stream] = StreamBranch(self, number, window)
        return branch

    def drop(self, stream: Term) -> None:
        branch = self.branches[stream]
        rows = [(row, count) for row, count in self.bag.rows() if row[self.column] == branch.number]
        del self.branches[stream]
        for row, count in rows:
            branch.pass_on(row, -count)

    def _present(self) -> Iterable[tuple[Solution, int]]:
        for branch in self.branches.values():
            for row, count in branch.window.bag.rows():
                made = branch.made(row)
                if made is not None:
                    yield made, count


class StreamBranch:
    """Take the rows of one stream."""

    def __init__(self, union: StreamUnion, number: TermId, window: WindowInput) -> None:
        self.number = number
        self.window = window
        self._union = union
        self.route: Callable[[Solution, int], None] = self._route
        self.failed: Callable[[Exception], None] = self._failed

    @property
    def takes_expired(self) -> bool:
        """True, because the rows of all streams have one index."""
        return True

    @takes_expired.setter
    def takes_expired(self, takes: bool) -> None:
        """Set it on the input of the join."""
        self._union.entry.takes_expired = takes

    def _failed(self, error: Exception) -> None:
        self._union.entry.failed(error)

    def _route(self, row: Solution, count: int) -> None:
        made = self.made(row)
        if made is not None:
            self.pass_on(made, count)

    def made(self, row: Solution) -> Solution | None:
        """Return the row with its stream; ``None`` where the query does not see it."""
        union = self._union
        if self.window.watermark is not None:
            if row[-1] < union.since:
                return None
            row = row[:-1]
        if union.agrees is None:
            return (*row, self.number)
        return row if row[union.agrees] == self.number else None

    def pass_on(self, made: Solution, count: int) -> None:
        """Pass a row that came or left to the join."""
        union = self._union
        union.bag.change(made, count)
        if count > 0:
            union.recent.append(made)
        if count > 0 or union.entry.takes_expired:
            union.entry.route(made, count)


_INPUTS: Final = 64
"""Routes are functions with a loop for each input; Python indents 100 times."""


@dataclass(frozen=True, slots=True)
class PlanContext:
    """The parts that the plans of an engine share.

    Args:
        exceeded: is called with a plan whose joins made more.
    """

    shared: Shared
    windows: WindowRegistry
    shared_rows: SharedRows
    environment: Environment
    exceeded: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query that a plan computes.

    Args:
        query: the query, or the common part of several.
        number: of its registration (see `Watermark`): of stamped rows it sees those that came
            since.
        lifted: variables that stand for constants of instances, `SLICE` for their OFFSET and LIMIT,
            and `INSTANCE` where their joins give it, then a column of the result.
        opens: instances may be added while elements flow.
    """

    query: ContinuousQuery
    dataset: Dataset
    semantics: Semantics
    number: int
    lifted: frozenset[Variable] = frozenset()
    opens: bool = False


class ContinuousLeaves(StampedLeaves):
    """Make the leaves of one query.

    Args:
        planned: the query; its other parts determine the variables that a leaf must give.
        work: the remaining rows that joins may make.

    Attributes:
        lifted: variables that stand for the constants of instances, but for `SLICE`.
        static: the static rows in use, with their inputs.
        alone: the static rows that no window is joined with.
        dispatches: stamps go with the rows of joins, to where queries are told apart.
        subscriptions: the windows in use, with their listeners.
        unions: the inputs that have the windows of every stream.
    """

    def __init__(
        self,
        planned: QueryPlan,
        context: PlanContext,
        add: Callable[[MultiwayJoin], object],
        work: Work | None = None,
    ) -> None:
        query, lifted = planned.query, planned.lifted - {SLICE}
        self._work = work
        self._routing: Routing = context.shared.settings.routing
        self.joins: list[MultiwayJoin] = []
        self.static: list[tuple[StaticRows, StaticInput]] = []
        self.subscriptions: list[tuple[WindowInput, JoinInput | StreamBranch]] = []
        self.unions: list[StreamUnion] = []
        self.instance_bags: list[tuple[RowBag, Schema, JoinInput]] = []
        self._query = query
        self._windows = context.windows
        self._dataset = planned.dataset
        self._shared_rows = context.shared_rows
        self._environment = context.environment
        self.dictionary = context.shared.dictionary
        self._distinct = not planned.semantics.nets
        self.lifted = lifted
        # Where they are told apart only above, by what they compare with, so are stamps.
        self._lifted = lifted if INSTANCE in lifted else frozenset()
        self.dispatches = planned.opens and bool(planned.lifted) and not self._lifted
        self._since = planned.number
        self.numbers = [planned.number]
        self._opens = planned.opens
        self._add = add
        self.alone: list[StaticRows] = []
        self._all = occurrences(query.query)
        self._known = {each for each in everything(query.query) if isinstance(each, BGP)}
        self._everything = counts_whole_rows(query.query)

    def bgp(
        self,
        patterns: Sequence[QuadPattern],
        seed: Node | None,  # noqa: ARG002 (the protocol has it)
    ) -> Node:
        """Return a node of the solutions (see `tpf_client.dataflow.node.Leaves`).

        A seed is not used.
        """
        return self.join(patterns, ())

    def join(
        self, patterns: Sequence[QuadPattern], conditions: Sequence[Expression]
    ) -> MultiwayJoin:
        here = occurrences((tuple(patterns), tuple(conditions)))
        outside = frozenset(
            name
            for name in here
            if self._everything
            or BGP(tuple(patterns)) not in self._known
            or self._all[name] > here[name]
        )
        clauses: dict[str, list[QuadPattern]] = {}
        static: list[QuadPattern] = []
        streams: dict[str, Variable] = {}
        for pattern in patterns:
            if (stream := named_stream(pattern)) is not None:
                streams[pattern.graph] = stream
            elif self._query.window_of(pattern.graph) is not None:
                clauses.setdefault(pattern.graph, []).append(pattern)
            else:
                static.append(pattern)
        parts = components(static, variables_of_quad)
        inner: list[list[Expression]] = [[] for _ in parts]
        rest: list[Expression] = []
        for condition in conditions:
            for position, part in enumerate(parts):
                if set(variables_in(condition)) <= set(occurrences(tuple(part))):
                    inner[position].append(condition)
                    break
            else:
                rest.append(condition)

        inputs: list[JoinInput] = []
        checks = [self._condition(each) for each in rest]
        for graph, members in clauses.items():
            if graph in streams or is_variable(graph):
                stream = streams.get(graph, Variable(graph))
                inputs += self._union_inputs(graph, members, stream)
                continue
            for window, entry in self._window_inputs(graph, members):
                inputs.append(entry)
                if window.watermark is not None:
                    checks.append(self._seen(entry))
        for part, own in zip(parts, inner, strict=True):
            within = occurrences((tuple(part), tuple(own)))
            kept = frozenset(n for n in within if n in outside or here[n] > within[n])
            inputs.append(self._static_input(part, own, kept, alone=not clauses))
        instance = self._instance_input(inputs)
        if instance is not None:
            inputs.append(instance)
        if len(inputs) > _INPUTS:
            raise UnsupportedContinuousQueryError(
                f"a join of {len(inputs)} windows and static parts; {_INPUTS} are allowed"
            )
        # In the order of the result, so that often nothing need be projected.
        first = [name for name in wanted_variables(self._query.query) if name in outside]
        needed = tuple(dict.fromkeys((*first, *(name for name in here if name in outside))))
        if self._lifted:
            needed = tuple(dict.fromkeys((*needed, INSTANCE)))
        if self.dispatches:
            stamps = (n for each in inputs for n in each.variables if n.startswith(STAMP))
            needed = (*needed, *stamps)
        join = MultiwayJoin(inputs, checks, needed, self._routing, self._work)
        self.joins.append(join)
        self._add(join)
        return join

    def _static_input(
        self,
        part: Sequence[QuadPattern],
        conditions: Sequence[Expression],
        kept: frozenset[Variable],
        *,
        alone: bool,
    ) -> JoinInput:
        """Return an input with the rows of static patterns, shared if a window is joined with it.

        Without one, present rows are a result that was not sent.
        """
        own = rows = StaticRows(
            self._dataset,
            part,
            self.dictionary,
            [self._condition(condition) for condition in conditions],
            kept,
            distinct=self._distinct,
            lifted=self._lifted,
        )
        if not (alone or conditions or own.per_instance):
            rows = self._shared_rows.shared(own)
            if rows is own:
                rows.evaluate()
            elif any(rows is each for each, _ in self.static):
                # A query with the same part twice must see one change after the other.
                rows = own
        if alone:
            self.alone.append(rows)
        entry = rows.join_input(part, own.schema)
        self.static.append((rows, entry))
        return entry

    def streams(self, pattern: Pattern) -> bool:
        return any(
            self._query.window_of(quad.graph) is not None
            for each in everything(pattern)
            if isinstance(each, BGP)
            for quad in each.patterns
        )

    def _condition(self, expression: Expression) -> JoinCondition:
        names = tuple(sorted(variables_in(expression)))
        check = Compiler(self._environment, names).condition(expression)
        return JoinCondition(names, check)

    def _seen(self, entry: JoinInput) -> JoinCondition:
        (stamp,) = (name for name in entry.variables if name.startswith(STAMP))
        if self._lifted:
            return JoinCondition(
                (stamp, INSTANCE), lambda values: values[0] >= values[1], "{} >= {}"
            )
        since = self._since
        return JoinCondition((stamp,), lambda values: values[0] >= since, "{} >= {constant}", since)

    def _window_inputs(
        self, graph: str, members: list[QuadPattern]
    ) -> list[tuple[WindowInput, JoinInput]]:
        result = []
        for clause, key, names, label in self._keyed(graph, members):
            taken = [window for window, _ in self.subscriptions]
            window = self._windows.window_input(clause, key, taken, opens=self._opens)
            if window.watermark is not None:
                names = (*names, Variable(f"{STAMP}{len(taken)}"))
            entry = window_join_input(label, names, window)
            self.subscriptions.append((window, entry))
            result.append((window, entry))
        return result

    def _union_inputs(
        self, graph: str, members: list[QuadPattern], stream: Variable
    ) -> Iterator[JoinInput]:
        """Return inputs with the windows of every stream, and its name."""
        for clause, key, names, label in self._keyed(graph, members):
            union = StreamUnion(clause, key, label, names, stream, self._since)
            self.unions.append(union)
            for name in self._windows.streams:
                self._branch(union, name)
            yield union.entry

    def _branch(self, union: StreamUnion, name: Term) -> tuple[WindowInput, StreamBranch]:
        taken = [window for window, _ in self.subscriptions]
        window = self._windows.window_input(union.of(name), union.key, taken, opens=False)
        branch = union.add(name, self.dictionary.encode(name), window)
        self.subscriptions.append((window, branch))
        return window, branch

    def stream_came(self, name: Term) -> list[tuple[WindowInput, StreamBranch]]:
        """Add a stream; return the new windows over it with their listeners."""
        return [self._branch(union, name) for union in self.unions]

    def stream_gone(self, name: Term) -> list[tuple[WindowInput, StreamBranch]]:
        """Remove a stream; return the windows over it with their former listeners."""
        gone: list[tuple[WindowInput, StreamBranch]] = []
        for union in self.unions:
            branch = union.branches[name]
            gone.append((branch.window, branch))
            self.subscriptions.remove(gone[-1])
            union.drop(name)
        return gone

    def reason(self, union: StreamUnion) -> str | None:
        """Return why windows over every stream have nothing for a query."""
        name = union.clause.stream
        if not union.branches:
            return f"{name}: there is no stream"
        for join in self.joins:
            if union.entry in join.inputs:
                for entry in join.inputs:
                    if entry.seldom and name in entry.variables:
                        column = entry.variables.index(Variable(name))
                        named = {row[column] for row, _ in entry.bag.rows()}
                        if named.isdisjoint(each.number for each in union.branches.values()):
                            return f"{name}: none of the streams is named by {{ {entry.label} }}"
        if not union.size:
            return f"{name}: no stream has anything for {union.entry.label}"
        return None

    def _keyed(
        self, graph: str, members: list[QuadPattern]
    ) -> Iterator[tuple[WindowClause, PatternKey, Schema, str]]:
        """Group the patterns of a window by inputs: clause, key, variables and label."""
        clause = self._query.window_of(graph)
        assert clause is not None
        for group in _stars(members, self.dictionary, whole=not isinstance(clause.window, Triples)):
            key, names = number_variables(group, self.dictionary)
            text = " . ".join(" ".join(pattern[:3]) for pattern in group)
            yield clause, key, names, f"STREAM {clause.stream} [{clause.window}] {{ {text} }}"

    def _instance_input(self, inputs: Sequence[JoinInput]) -> JoinInput | None:
        if not self._lifted:
            return None
        variables = {name for each in inputs for name in each.variables}
        names = sorted(variables & self._lifted - {INSTANCE})
        if not names and INSTANCE in variables:
            return None
        schema = (*dict.fromkeys(names), INSTANCE)
        bag = RowBag(len(schema))
        entry = JoinInput("instances", schema, lambda: bag, lambda: bag.size, seldom=True)
        self.instance_bags.append((bag, schema, entry))
        return entry


def _stars(
    members: list[QuadPattern], dictionary: TermDictionary, *, whole: bool
) -> list[list[QuadPattern]]:
    subjects: dict[str, list[QuadPattern]] = {}
    result: list[list[QuadPattern]] = []
    for pattern in dict.fromkeys(members):
        if whole and not is_variable(pattern.predicate):
            subjects.setdefault(pattern.subject, []).append(pattern)
        else:
            result.append([pattern])
    for group in subjects.values():
        group.sort(key=lambda pattern: pattern.predicate)
        key, _ = number_variables(group, dictionary)
        if is_star(key):
            result.append(group)
        else:
            result += [[pattern] for pattern in group]
    return result


def window_join_input(label: str, names: Schema, window: WindowInput) -> JoinInput:
    """Return a window as an input of a join."""
    return JoinInput(
        label, names, lambda: window.bag, lambda: window.held, lambda: tuple(window.recent)
    )
