"""Evaluate queries that are the same but for constants, instant by instant."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, get_args

from annotations.terms import Term, Variable
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow, Input, LimitedInput, Work
from tpf_client.dataflow.operators.basic import Output
from tpf_client.errors import LimitError, UnsupportedQueryError
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import (
    Aggregated,
    Call,
    Constant,
    Expression,
    Filter,
    Pattern,
    Query,
    Row,
)
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.rewrite.visitor import conjunction, conjuncts, first_exists, movable
from tpf_client.sparql.scopes import always_bound, in_scope, variables_in
from tpf_server.continuous.runtime.elements.elements import date_time_at
from tpf_server.continuous.runtime.errors import (
    ContinuousError,
    FailedEvaluationError,
    JoinLimitError,
)
from tpf_server.continuous.runtime.instants.builder import CsparqlLeaves, TooManyStaticError, build
from tpf_server.continuous.runtime.instants.contents import WindowContents, WindowView
from tpf_server.continuous.runtime.instants.csparql_query import Audience
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph
from tpf_server.continuous.runtime.plans.dispatch import (
    Dispatch,
    NettingDispatch,
    comparison,
    lifted_comparison,
)
from tpf_server.continuous.runtime.plans.stamps import keeps_stamps
from tpf_server.continuous.runtime.static.static_data import StaticData
from tpf_server.continuous.runtime.static.static_rows import SharedRows

# A query in two parts: what it shares with queries that compare with other constants, and its own.
#
# The cut is at the last FILTER or HAVING that compares with constants. What is below is computed
# once for all queries that have it in common; what is above is theirs, whatever it is.

_Above: TypeAlias = (
    algebra.Project
    | algebra.Extend
    | algebra.OrderBy
    | algebra.Distinct
    | algebra.Reduced
    | algebra.Slice
    | algebra.Group
    | Filter
)
_ABOVE: Final = get_args(_Above)
"""What may be above the gap; AGGREGATE is an `Extend`."""
RowsT = TypeVar("RowsT", bound=Sized)
ItemT = TypeVar("ItemT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class PartedQuery:
    """A query cut into a shared part and its own.

    Args:
        comparisons: conditions with variables in place of constants.
        gap: stands for the solutions that pass the comparisons.
        own: the query over `gap`, with the comparisons.
        stamped: the shared part has stamps.
    """

    below: algebra.Query
    comparisons: tuple[Call, ...]
    constants: tuple[Term, ...]
    above: algebra.Query
    gap: Pattern
    own: algebra.Query
    stamped: bool = False


def parted(query: algebra.Query) -> PartedQuery | None:
    """Cut a query, if comparisons with constants are at its end."""
    for above, pattern in _cuts(query):
        result = _cut(pattern)
        if result[1]:
            return _parted(query, above, *result)
    return None


def parted_by_stamps(query: algebra.Query) -> PartedQuery | None:
    """Cut a query above solutions with stamps; best at comparisons with constants."""
    best: PartedQuery | None = None
    for above, pattern in _cuts(query):
        inner, comparisons, constants = _cut(pattern)
        slices = any(isinstance(each, algebra.Slice) for each in algebra.walk(inner))
        if (comparisons or best is None) and not slices and keeps_stamps(inner, absence=True):
            best = replace(_parted(query, above, inner, comparisons, constants), stamped=True)
            if comparisons:
                break
    return best


def _cuts(query: algebra.Query) -> Iterator[tuple[list[_Above], Pattern]]:
    """Give the operators above each pattern at which a query may be cut, from its result down."""
    above: list[_Above] = []
    pattern = query.pattern
    while query.form != "DESCRIBE":
        yield above, pattern
        if not isinstance(pattern, _ABOVE) or any(
            first_exists(each) is not None for each in algebra.expressions_of(pattern)
        ):
            return
        above = [*above, pattern]
        pattern = pattern.input


def _parted(
    query: algebra.Query,
    above: Sequence[_Above],
    inner: Pattern,
    comparisons: tuple[Call, ...],
    constants: tuple[Term, ...],
) -> PartedQuery:
    needed = _needed(above, comparisons, in_scope(inner))
    gap = algebra.Values(needed, ())
    same = isinstance(inner, algebra.Project) and inner.variables == needed
    projected = inner if same else algebra.Project(inner, needed)
    below = algebra.Query("SELECT", projected, needed, dataset=query.dataset)

    def over(pattern: Pattern) -> algebra.Query:
        for each in reversed(above):
            pattern = replace(each, input=pattern)
        return replace(query, pattern=pattern)

    whole = conjunction(
        Call(each.name, (each.arguments[0], Constant(term)))
        for each, term in zip(comparisons, constants, strict=True)
    )
    own = over(gap if whole is None else Filter(gap, whole))
    return PartedQuery(below, comparisons, constants, over(gap), gap, own)


def _cut(pattern: Pattern) -> tuple[Pattern, tuple[Call, ...], tuple[Term, ...]]:
    conditions: list[Expression] = []
    while isinstance(pattern, Filter):
        conditions += conjuncts(pattern.condition)
        pattern = pattern.input
    comparisons: list[Call] = []
    constants: list[Term] = []
    others: list[Expression] = []
    for each in conditions:
        result = lifted_comparison(each, len(constants)) if movable(each) else None
        if result is None:
            others.append(each)
        else:
            comparisons.append(result[0])
            constants.append(result[1])
    rest = conjunction(others)
    inner = pattern if rest is None else Filter(pattern, rest)
    return inner, tuple(comparisons), tuple(constants)


def _needed(
    above: Sequence[Pattern], comparisons: tuple[Call, ...], scope: tuple[Variable, ...]
) -> tuple[Variable, ...]:
    used = {name for each in comparisons for name in variables_in(each)}
    chooses = False
    for pattern in above:
        for expression in algebra.expressions_of(pattern):
            used |= variables_in(expression)
        match pattern:
            case algebra.Project(_, names):
                used.update(names)
                chooses = True
            case Aggregated(_, _, _, names):
                if pattern.aggregate.argument is None and pattern.aggregate.distinct:
                    return scope
                used.update(names)
            case algebra.Group(_, _, aggregates):
                if any(each.argument is None and each.distinct for _, each in aggregates):
                    return scope
                chooses = True
    return tuple(name for name in scope if name in used) if chooses else scope


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """Parts that all evaluations of an engine share."""

    static: StaticData
    shared_rows: SharedRows
    dictionary: TermDictionary
    environment: Environment
    join_rows: int


class Question:
    """The question that equal queries ask of an evaluation; no `parts`: the query is not cut.

    Attributes:
        since: what it sees of a stamped evaluation: elements with higher numbers.
        number: its own (see `Watermark`), as a term; it sees the stamps that are not smaller.
        hidden: the latest timestamps of those before, by window.
        askers: queries that hear of changes.
    """

    def __init__(
        self,
        key: Hashable,
        query: Query,
        parts: PartedQuery | None,
        number: int,
        since: int = 0,
    ) -> None:
        self.key = key
        self.query = query
        self.parts = parts
        self.since = since
        self.number = number
        self.hidden: dict[Term, int | None] = {}
        self.owners = 0
        self.askers: dict[Any, None] = {}

    def touch(self) -> None:
        for each in self.askers:
            each.touch()


_RowOf: TypeAlias = Callable[[Solution], Row]


def _row(decode: Callable[[TermId], Term], solution: Solution) -> Row:
    return tuple([decode(each) if each else None for each in solution])


class _Rows(dict[Solution, Row]):
    def __init__(self, decode: Callable[[TermId], Term]) -> None:
        self._decode = decode

    def __missing__(self, solution: Solution) -> Row:
        row = self[solution] = _row(self._decode, solution)
        return row


class Computation:
    """The dataflow of a query, its answers, and what it may spend.

    Attributes:
        stale: its answers may be others than at the last flush.
    """

    answers: "AnswerRows"

    def __init__(self, context: EvaluationContext) -> None:
        self.work = Work(context.join_rows, held=True)
        self.environment = replace(context.environment, spend=self.work.read_text)
        self.flow = Dataflow(context.dictionary)
        self.stale = True

    def complete(self, output: Output, query: Query, row_of: _RowOf) -> None:
        """Set the last node of the dataflow."""
        for node in self.flow.nodes:
            node.limit(self.work)
        self.answers = AnswerRows(output, row_of, self.work, query)

    def push_on(self) -> None:
        """Apply the changes since the last flush."""
        self.stale = False
        self.work.check()
        self.flow.flush()

    def fail(self, error: Exception) -> None:
        self.stale = True
        self.work.fail(error)

    def ended(self, error: Exception) -> ContinuousError:
        """End it because of an error; return that of its queries."""
        self.fail(error)
        failure = self.work.failure
        return JoinLimitError(str(error)) if failure is None else FailedEvaluationError(failure)


class QuestionPart(Computation):
    """The dataflow of a question's own part."""

    def __init__(
        self,
        question: Question,
        leaves: CsparqlLeaves,
        context: EvaluationContext,
        row_of: _RowOf,
    ) -> None:
        super().__init__(context)
        self._question = question
        parts = question.parts
        assert parts is not None
        self.constants = tuple(context.dictionary.encode(each) for each in parts.constants)
        certain = always_bound(parts.below.pattern)
        self._entry = self.flow.add(LimitedInput(parts.below.variables, certain, self.work))
        gap = parts.gap, self._entry
        output = build(parts.above, leaves, self.flow, self.environment, gap=gap)
        self.complete(output, parts.above, row_of)

    def push(self, solution: Solution, count: int) -> None:
        if not self.stale:
            self.stale = True
            self._question.touch()
        self._entry.push(solution, count)

    def flush(self) -> None:
        if self.stale:
            self.push_on()
            self.answers.flushed()
            self.work.begin()


class AnswerRows:
    """The rows of an output, and the changes of its last flush.

    `version` counts changing flushes.
    """

    def __init__(self, output: Output, row_of: _RowOf, work: Work, query: Query) -> None:
        self.output = output
        self.version = 0
        self._row_of = row_of
        self._work = work
        self._triples = len(query.template)
        self._rows: tuple[Row, ...] | None = None
        self._changes: Sequence[tuple[Solution, int]] = ()
        self._delta: list[tuple[Row, int]] | None = None

    def flushed(self) -> bool:
        """True where the answer may have changed."""
        changes = self.output.take_changes()
        # An order may be by what is not seen.
        changed = bool(changes) or self.output.ordered or not self.version
        if changed:
            self.version += 1
            self._rows = self._delta = None
            self._changes = changes
        return changed

    def rows(self) -> tuple[Row, ...]:
        if self._rows is None:
            try:
                self._rows = self._checked(tuple(map(self._row_of, self.output.rows())))
            except LimitError as error:
                raise JoinLimitError(str(error)) from None
        return self._rows

    def changes(self, seen: tuple["AnswerRows", int] | None) -> list[tuple[Row, int]] | None:
        """Return rows with counts of additions or (negative) removals since a version.

        ``None``: unknown or ordered; compare whole answers.
        """
        if seen is None or seen[0] is not self or self.output.ordered:
            return None
        if seen[1] == self.version:
            return []
        if seen[1] < self.version - 1:
            return None
        if self._delta is None:
            row_of = self._row_of
            self._delta = self._checked([(row_of(row), count) for row, count in self._changes])
        return self._delta

    def _checked(self, rows: RowsT) -> RowsT:
        """Rows that a template makes no more triples of than joins may make rows."""
        if len(rows) * self._triples > self._work.most:
            raise JoinLimitError(f"the query makes more than {self._work.most} triples at once")
        return rows


class PeriodicEvaluation:
    """Keep one query up to date, or the shared part of several.

    A stamped one is for queries that do not see the same elements: its solutions have stamps that
    say who sees them.

    Attributes:
        questions: by key; with more than one it is `widened`.
        joined: it was compared with equal ones.
        windows: views, by the graphs of patterns.
        audiences: of its queries that are looked at together, counted.
        in_graphs: streams whose named graphs it needs.
        predicates: of triples that it may need; ``None``: any.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        context: EvaluationContext,
        since: int = 0,
        key: Hashable = None,
        parts: PartedQuery | None = None,
    ) -> None:
        self.key = key
        self.stamped = parts is not None and parts.stamped
        self.plans = 0
        self.joined = False
        self.questions: dict[Hashable, Question] = {}
        self.audiences: Counter[Audience] = Counter()
        self._dispatch: Dispatch | None = None
        self._parts: dict[int, QuestionPart] = {}
        self._numbers: list[int] = []
        self._rows = _Rows(context.dictionary.decode)
        self.evaluations = 0
        self.recomputed = 0
        self._context = context
        self.windows = {
            clause.graph: WindowView(clause.window, since, self.refreshed, stamped=self.stamped)
            for clause in graph.clauses
        }
        self.inputs = {clause.graph: clause.input for clause in graph.clauses}
        self.in_graphs = frozenset(each.stream for each in graph.clauses if each.in_graphs)
        self._now: int | None = None
        self._plan(graph)
        if parts is not None:
            self._widen(parts)
        result = self._leaves.predicates
        self.predicates = None if result is None else frozenset(result)

    def _plan(self, graph: OperatorGraph) -> None:
        self.graph = graph
        context = self._context
        self._main = main = Computation(context)
        main.work.share(len(self.questions))
        self._leaves = CsparqlLeaves(
            graph,
            self.windows,
            context.static,
            context.shared_rows,
            main.flow,
            main.work,
            self._numbers if self.stamped else None,
        )
        try:
            output = build(
                graph.query,
                self._leaves,
                main.flow,
                main.environment,
                lambda quad: graph.part_of(quad) == "static",
            )
            self.plans += 1
            main.complete(output, graph.query, partial(_row, context.dictionary.decode))
            self._leaves.open()
        except BaseException as error:
            # Else its joins would be told of static changes for good.
            self._let_go()
            context.shared_rows.drop_idle()
            if main.work.failure is not None:
                raise main.work.failure from None
            if isinstance(error, LimitError):
                raise main.ended(error) from None
            raise

    def end(self) -> None:
        """End the evaluation under way; called from another thread."""
        self._main.work.end()

    def plan_anew(self, graph: OperatorGraph, parts: PartedQuery | None = None) -> None:
        """Continue with other operators, or those of the shared part, and the same windows.

        Too many rows end its queries at their next answers.
        """
        self._let_go()
        self._dispatch = None
        self._parts.clear()
        try:
            self._plan(graph)
        except (TooManyStaticError, UnsupportedQueryError):
            raise
        except Exception as error:  # noqa: BLE001 - it ends its queries, and no others
            self._main.stale = True
            if not isinstance(error, JoinLimitError):
                self._main.fail(error)
        if parts is not None and not self._main.work.ended:
            self._widen(parts)
        self.refreshed()

    def _widen(self, parts: PartedQuery) -> None:
        environment, variables = self._main.environment, self._main.answers.output.variables
        self._entry = Input(variables, always_bound(parts.below.pattern))
        compared = [comparison(each, variables, environment) for each in parts.comparisons]
        make = NettingDispatch if self.stamped else Dispatch
        self._dispatch = make(self._entry, compared, self._context.dictionary)
        self._dispatch.connect(self._push)
        for question in self.questions.values():
            self._part_of(question)

    def _push(self, solution: Solution, count: int) -> None:
        # One row for all of them.
        row, numbers = solution[:-1], cast("tuple[int, ...]", solution[-1])
        for number in numbers:
            self._parts[number].push(row, count)

    def ask(self, question: Question) -> Question:
        """Add a query's question; give that of its equals."""
        if self.stamped and question.key not in self.questions:
            latest = next(reversed(self.questions.values()), None)
            if latest is not None and self.whole(latest):
                # Nothing older is in the windows.
                del self._numbers[: bisect_left(self._numbers, latest.number)]
            self._numbers.append(question.number)
        shared = self.questions.setdefault(question.key, question)
        shared.owners += 1
        self._main.work.share(len(self.questions))
        if self.widened:
            self._part_of(shared)
        return shared

    @property
    def widened(self) -> bool:
        """True where the solutions of the shared part are dispatched to questions."""
        return self._dispatch is not None

    def _part_of(self, question: Question) -> QuestionPart:
        number, part = question.number, self._parts.get(question.number)
        if part is None:
            self._pass_on()
            assert self._dispatch is not None
            part = QuestionPart(question, self._leaves, self._context, self._rows.__getitem__)
            self._parts[number] = part
            question.touch()
            self._dispatch.add(number, part.constants)
            try:
                for solution, count in self._main.answers.output.multiset().items():
                    row = self._dispatch.seen(number, solution)
                    if row is not None:
                        part.push(row, count)
            except Exception as error:  # noqa: BLE001 - it ends one part alone
                part.fail(error)
        return part

    def _pass_on(self) -> None:
        assert self._dispatch is not None
        self._rows.clear()
        for solution, count in self._main.answers.output.take_changes():
            self._entry.push(solution, count)
        self._dispatch.flush()

    def leave(self, question: Question) -> bool:
        """Take a query's question back; true where it was the last one, and this has ended."""
        question.owners -= 1
        if question.owners <= 0:
            self.questions.pop(question.key, None)
            self._main.work.share(len(self.questions))
            part = self._parts.pop(question.number, None)
            if part is not None and self._dispatch is not None:
                self._dispatch.remove(question.number)
        if not self.questions:
            self._leaves.close()
        return not self.questions

    @property
    def owners(self) -> int:
        """Count the queries."""
        return sum(each.owners for each in self.questions.values())

    def plan_at(self, instant: int) -> None:
        """Plan with an instant as NOW(), unless it is that already."""
        if instant != self._now:
            environment = replace(self._context.environment, now=date_time_at(instant))
            self._context = replace(self._context, environment=environment)
            self.plan_anew(self.graph)
            self._now = instant

    def _let_go(self) -> None:
        self._leaves.close()
        for view in self.windows.values():
            view.silence()

    def held(self, question: Question) -> dict[Term, int]:
        """Count the elements in each window that a question sees."""
        return {
            name: view.contents.held(max(view.since, question.since))
            for name, view in self.windows.items()
        }

    def hide_past(self, question: Question) -> None:
        """Note what a question does not see, when it begins and its windows are there."""
        if question.owners == 1:
            newest = {name: view.contents.newest for name, view in self.windows.items()}
            question.hidden.update(newest)

    def idle(self, question: Question) -> bool:
        """True where a question sees no element."""
        views = self.windows.values()
        return not any(each.contents.holds(max(each.since, question.since)) for each in views)

    def whole(self, question: Question) -> bool:
        """True where nothing in its windows is hidden from a question."""
        return all(
            view.contents.passed(question.hidden[name], question.since)
            if self.stamped
            else not view.since
            for name, view in self.windows.items()
        )

    def refreshed(self) -> None:
        """Note that its answers may have changed."""
        self._main.stale = True
        for audience in self.audiences:
            audience.stale[self] = None

    def _touch(self) -> None:
        for question in self.questions.values():
            question.touch()

    @property
    def contents(self) -> list[WindowContents]:
        return [view.contents for view in self.windows.values()]

    def answers(self, instant: int, question: Question | None = None) -> AnswerRows:
        """Answer a question, or the only one, at an instant, never an earlier one."""
        self.evaluations += 1
        self.move(instant)
        if question is None or not self.widened:
            return self._main.answers
        part = self._part_of(question)
        try:
            part.flush()
        except Exception as error:  # noqa: BLE001
            # It is that of one question.
            raise part.ended(error) from part.work.failure
        return part.answers

    def changed(self, question: Question, seen: tuple[AnswerRows, int] | None) -> bool:
        """True where an answer may differ from a version."""
        if self._main.stale:
            return True
        part = self._part_of(question) if self.widened else self._main
        return part.stale or seen != (part.answers, part.answers.version)

    def move(self, instant: int) -> None:
        """Move the windows, and update the answers."""
        main = self._main
        main.work.begin()
        for view in self.windows.values():
            view.contents.move(instant)
        if not main.stale:
            return
        self.recomputed += 1
        try:
            main.push_on()
            if self.widened:
                self._pass_on()
            elif main.answers.flushed():
                self._touch()
        except Exception as error:  # noqa: BLE001
            self._touch()
            raise main.ended(error) from main.work.failure


# One for all that ask the same, but for constants.


class Equals(Generic[ItemT]):
    """Evaluations, or triggers, that can replace others.

    What a query brings that is registered after elements sees only later ones. Its equals take its
    place when nothing is hidden from it. Those without a key stay alone.
    """

    def __init__(self) -> None:
        self._begun: dict[Hashable, dict[ItemT, int]] = {}
        self._whole: dict[Hashable, ItemT] = {}

    def fresh(self, key: Hashable, arrivals: int) -> ItemT | None:
        """Return an equal one, if no element came since."""
        item = self.latest(key)
        return item if item is not None and self._begun[key][item] == arrivals else None

    def latest(self, key: Hashable) -> ItemT | None:
        """Return the one that began last, whatever it sees."""
        return next(reversed(self._begun.get(key, {})), None)

    def count(self, key: Hashable) -> int:
        return len(self._begun.get(key, ()))

    def add(self, key: Hashable, item: ItemT, arrivals: int) -> None:
        if key is not None:
            self._begun.setdefault(key, {})[item] = arrivals

    def remove(self, key: Hashable, item: ItemT) -> None:
        if self._whole.get(key) is item:
            del self._whole[key]
        begun = self._begun.get(key, {})
        begun.pop(item, None)
        if not begun:
            self._begun.pop(key, None)

    def whole(self, key: Hashable) -> ItemT | None:
        """Return the one from which nothing is hidden."""
        return self._whole.get(key)

    def first_whole(self, key: Hashable, item: ItemT) -> ItemT:
        """Return the equal one from which nothing is hidden, as from this one, or this."""
        return item if key is None else self._whole.setdefault(key, item)

    def __len__(self) -> int:
        return len(self._whole) + len(self._begun)
