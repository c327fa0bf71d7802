"""A continuous query as its user sees it: a stream of updates."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

from annotations.instants import LAST, format_instant
from annotations.terms import QuadPattern, Variable, is_variable
from tpf_client.errors import SourceError
from tpf_client.fragments.fetcher import Statistics
from tpf_client.planner.evaluation import Evaluation
from tpf_client.planner.explain import explain_plan, plan_tree, step_json
from tpf_client.planner.leaves import FragmentLeaves, Step
from tpf_client.planner.live_fragment import LiveFragment, canonical_pattern
from tpf_client.solutions import Solution, data_frame, rdflib_graph
from tpf_client.sparql.algebra import QueryForm, Row
from tpf_client.streaming.detection import Detected
from tpf_client.streaming.scheduler import Job, Scheduler, TakeTick
from tpf_client.streaming.streamer import Streamer, Tick
from tpf_client.streaming.validity import Span

if TYPE_CHECKING:
    import pandas
    import rdflib


# What of a continuous query is static, what is dynamic, and why, as text and as JSON.

_HOW = {
    "labels": "labels travel with the pages",
    "freshness": "the server's answers change, without labels: HTTP tells for how long they hold",
    "static": "nothing is labelled: the answer cannot change",
}


def explain_stream(detected: Detected, evaluation: Evaluation, plan: Sequence[Step]) -> str:
    """How each dataset is labelled, and of each step of the plan whether it changes.

    Args:
        detected: how the datasets are labelled.
        evaluation: the query, evaluated at least once.
        plan: its steps.
    """
    parts = detected.parts or (detected,)
    lines = [f"{part.source.url}: {_labelling(part)}" for part in parts]
    for number, step in enumerate(plan, 1):
        lines.append(f"{number}. {explain_plan([step]).removeprefix('1. ')}")
        kind, why = _change(step, evaluation)
        lines.append(f"   {kind}: {why}" if kind else f"   {why}")
    return "\n".join(lines)


def stream_json(
    detected: Detected, evaluation: Evaluation, leaves: FragmentLeaves, began: datetime
) -> dict[str, Any]:
    """The same as a JSON object.

    Args:
        detected: how the datasets are labelled.
        evaluation: the query, evaluated at least once.
        leaves: know its plan.
        began: when the last evaluation began.
    """
    plan = leaves.plan
    parts = detected.parts or (detected,)
    steps = []
    for step in plan:
        kind, why = _change(step, evaluation)
        steps.append(step_json(step, began) | {"change": kind, "why": why})
    datasets = [{"url": part.source.url, "labels": _labelling(part)} for part in parts]
    tree = [] if leaves.pattern is None else plan_tree(leaves.pattern, plan)
    return {"datasets": datasets, "steps": steps, "tree": tree}


def _labelling(part: Detected) -> str:
    if part.how != "rewriting":
        return _HOW[part.how]
    ways = [f"{each.method.name} with {each.labelling} labels" for each in part.annotations]
    return f"patterns are rewritten: {', '.join(ways)}"


def _change(step: Step, evaluation: Evaluation) -> tuple[str | None, str]:
    """Whether a step is ``dynamic`` or ``static`` (``None``: nobody knows), and why."""
    wanted = canonical_pattern(step.pattern)
    fragments = [each for each in evaluation.fragments() if _belongs(each, wanted)]
    facts = dict.fromkeys(quad for each in fragments for quad in each.quads())
    held = evaluation.held
    labels = [held.label(quad) for quad in facts if quad in held]
    ends = [label.end for label in labels if label is not None]
    if ends:
        first = format_instant(min(ends))
        return (
            "dynamic",
            f"{len(ends)} of {len(labels)} facts are labelled; the first ends at {first}",
        )
    if any(each.dynamic for each in fragments):
        until = format_instant(min(each.fresh_until for each in fragments if each.dynamic))
        return "dynamic", f"its facts change, none has a label now; fresh until {until}"
    if not facts:
        return None, "nothing matches now, or nothing was asked for"
    due = min(each.due(evaluation.freshness) for each in fragments)
    again = "" if due == LAST else f"; looked at again at {format_instant(due)}"
    return "static", f"none of {len(labels)} facts is labelled{again}"


def _belongs(fragment: LiveFragment, wanted: QuadPattern) -> bool:
    return all(
        is_variable(term) or term == other
        for term, other in zip(wanted, fragment.pattern, strict=True)
    )


class TimedSolution(Solution):
    """A solution of a continuous query, and when it holds.

    It holds at every instant from `valid_from` until `valid_until` (not included), on the server's
    clock, unless facts are changed before their labels end; where the query asks for the absence of
    facts, also unless such come. What is derived from static facts alone has neither.

    Attributes:
        valid_from: the latest start of its facts; the instant of the evaluation where nobody tells
            a start; ``None``: always, as far as labels tell.
        valid_until: the earliest end of its facts, or, where these cannot be told (see
            ``docs/streaming.md``), of all facts that were looked at; ``None``: there is none.
    """

    __slots__ = ("valid_from", "valid_until")

    def __init__(self, variables: tuple[Variable, ...], row: Row, span: Span) -> None:
        super().__init__(variables, row)
        self.valid_from, self.valid_until = span

    def span_json(self) -> list[str | None]:
        """From when until when it holds, as texts."""
        return [_text(self.valid_from), _text(self.valid_until)]


@dataclass(frozen=True, slots=True)
class Update:
    """What one evaluation of a continuous query found.

    Args:
        at: the instant of the evaluation, on the server's clock.
        added: solutions that were not there before, each as often as it is new, and when they hold.
        removed: solutions that are gone.
        valid_until: the instant at which the first fact that was looked at expires; ``None`` where
            none does.
        error: why the evaluation failed; then nothing changed, and it will be tried again.
        warnings: what is wrong in the data, each said once.
        dynamic: whether the dataset can change at all.
        wakes_at: when the next evaluation is to take place, on the server's clock; ``None``: never.
        ordered: whether the query orders its answer.
        form: SELECT; ASK, whose answer is yes where it has a solution (without values); CONSTRUCT
            or DESCRIBE, whose solutions are the triples, with ``subject``, ``predicate`` and
            ``object``, each once.
        boolean: the answer of ASK, for which there is an update when it turns; ``None``: not known
            yet, or another form.
        pages: how many pages the query has wanted so far, those that were kept included.
        work: what was requested for the query so far; of a request that several queries wanted at
            the same time, the others count as merged.
        late: solutions of the answer that are there by grace alone: a label of their facts has
            ended, and was not renewed yet.
    """

    at: datetime
    added: tuple[TimedSolution, ...]
    removed: tuple[Solution, ...]
    valid_until: datetime | None
    error: SourceError | None
    warnings: tuple[str, ...]
    dynamic: bool
    wakes_at: datetime | None
    ordered: bool
    form: QueryForm
    boolean: bool | None
    pages: int
    work: Statistics
    late: tuple[Solution, ...]
    _tick: Tick

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, without their question marks."""
        return tuple(name[1:] for name in self._tick.variables)

    @property
    def results(self) -> list[TimedSolution]:
        """The whole answer as of the stream's newest update, with multiplicities.

        When its solutions hold may have changed since they were added: facts are renewed.
        """
        variables = self._tick.variables
        return [TimedSolution(variables, row, span) for row, span in self._tick.timed_answer()]

    def graph(self) -> "rdflib.Graph":
        """The whole graph that CONSTRUCT or DESCRIBE gives, as of the stream's newest update."""
        if self.form not in ("CONSTRUCT", "DESCRIBE"):
            raise ValueError(f"the answer of {self.form} is no graph")
        return rdflib_graph(self._tick.answer())

    def to_pandas(self) -> "pandas.DataFrame":
        """The whole answer as a table."""
        rows = self._tick.answer()
        return data_frame(self.variables, [Solution(self._tick.variables, row) for row in rows])

    def placed(self) -> list[tuple[int | None, TimedSolution]]:
        """The added solutions and where they are in the answer; ``None``: it has no order.

        Whoever takes the removed ones out of the last answer and then inserts these, one after the
        other, has the present answer.
        """
        if not self.ordered or not self.added:
            return [(None, each) for each in self.added]
        new: dict[Row, list[TimedSolution]] = {}
        for each in self.added:
            new.setdefault(each.row, []).append(each)
        return [
            (place, new[row].pop()) for place, row in enumerate(self._tick.answer()) if new.get(row)
        ]

    def to_json(self) -> dict[str, Any]:
        """The update as a JSON object: instants in ISO 8601, solutions as SPARQL JSON bindings.

        ``vars`` are the names of the columns. ``valid`` has, for each added solution, from when
        until when it holds, and ``places``, where the query orders its answer, its index there.
        ``boolean`` is the answer of ASK, ``null`` where it is not known yet, ``late`` are the
        solutions that are there by grace alone.
        """
        placed = self.placed()
        head = self.head(placed)
        return {
            "at": head.pop("at"),
            "vars": head.pop("vars"),
            "added": [solution.to_json() for _, solution in placed],
            "valid": head.pop("valid"),
            "removed": [solution.to_json() for solution in self.removed],
            **head,
        }

    def head(self, placed: Sequence[tuple[int | None, TimedSolution]]) -> dict[str, Any]:
        """What `to_json` has beside ``added`` and ``removed``.

        Args:
            placed: what the function of that name tells.
        """
        result: dict[str, Any] = {
            "at": format_instant(self.at),
            "vars": list(self.variables),
            "valid": [each.span_json() for _, each in placed],
            "valid_until": _text(self.valid_until),
            "next_look": _text(self.wakes_at),
            "dynamic": self.dynamic,
        }
        if self.form == "ASK":
            result["boolean"] = self.boolean
        if self.ordered:
            result["places"] = [place for place, _ in placed]
        if self.error is not None:
            result["error"] = str(self.error)
        if self.late:
            result["late"] = [solution.to_json() for solution in self.late]
        if self.warnings:
            result["warnings"] = list(self.warnings)
        return result


class Updates:
    """What a continuous query tells, however it is read.

    Args:
        streamer: evaluates it.
        form: of the query.
        ordered: whether it orders its answer.
    """

    def __init__(
        self, streamer: Streamer, *, form: QueryForm = "SELECT", ordered: bool = False
    ) -> None:
        self.streamer = streamer
        self._form = form
        self._ordered = ordered
        self._answered = False

    def now(self) -> datetime:
        """The present instant on the server's clock, as far as that is known."""
        return self.streamer.now()

    def explain(self) -> str:
        """What is static, what is dynamic and why, once there was an update."""
        running = self.streamer.running
        if running is None:
            raise RuntimeError("the stream was not started")
        return explain_stream(running.detected, running.evaluation, running.leaves.plan)

    def plan(self) -> dict[str, Any]:
        """What `explain` says as a JSON object, and how many seconds the last evaluation took.

        To be called between two updates, in the thread that gets them.
        """
        running = self.streamer.running
        if running is None:
            raise RuntimeError("the stream was not started")
        told = stream_json(
            running.detected, running.evaluation, running.leaves, self.streamer.began
        )
        return told | {"seconds": self.streamer.took.total_seconds()}

    def close(self) -> None:
        """Stop, from whatever thread."""
        self.streamer.close()

    def update(self, tick: Tick) -> Update:
        """What a tick tells the user."""
        added = zip(tick.added, tick.spans, strict=True)
        self._answered = self._answered or tick.error is None
        return Update(
            tick.at,
            tuple(TimedSolution(tick.variables, row, span) for row, span in added),
            tuple(Solution(tick.variables, row) for row in tick.removed),
            tick.valid_until,
            tick.error,
            tick.warnings,
            tick.dynamic,
            tick.wakes_at,
            self._ordered,
            self._form,
            bool(tick.answer()) if self._form == "ASK" and self._answered else None,
            self.streamer.pages,
            self.streamer.work,
            tuple(Solution(tick.variables, row) for row in tick.late),
            tick,
        )


class Stream(Updates):
    """A continuous query: iterate over its updates, or `start` it with a callback.

    However it is read, the next evaluation waits until the last update was taken: a slow consumer
    gets one update with all that changed meanwhile, and nothing piles up. Leaving the loop,
    `close`, or closing the client stops all its requests.

    Args:
        streamer: evaluates it.
        scheduler: evaluates what is started.
        form: of the query.
        ordered: whether it orders its answer.
    """

    def __init__(
        self,
        streamer: Streamer,
        scheduler: Callable[[], Scheduler],
        *,
        form: QueryForm = "SELECT",
        ordered: bool = False,
    ) -> None:
        super().__init__(streamer, form=form, ordered=ordered)
        self._scheduler = scheduler
        self._updates: Iterator[Update] | None = None
        self._job: Job | None = None

    def __iter__(self) -> Iterator[Update]:
        """The updates; the first one without an error holds the whole answer.

        Raises:
            SourceError: the first evaluation failed, by more than facts that expired meanwhile.
                Other failures are updates with an error.
        """
        if self._updates is None:
            self._updates = map(self.update, self.streamer.ticks())
        return self._updates

    def start(
        self,
        on_update: Callable[[Update], object],
        on_end: Callable[[BaseException | None], object] = lambda _: None,
    ) -> Self:
        """Call `on_update` with every update, in a thread of the client; returns at once.

        Args:
            on_update: gets the updates; what it raises ends the stream.
            on_end: called when there are no more, with the error that ended it.
        """

        def deliver(tick: Tick) -> Literal["go on", "pause"]:
            on_update(self.update(tick))
            return "go on"

        job = self._started(deliver)
        job.when_ended(lambda: on_end(job.error))
        return self

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until a started stream has ended; ``False``: it has not within that time.

        Raises:
            SourceError: its first evaluation failed.
            Exception: whatever its callback raised, which ended it.
        """
        if self._job is None:
            raise RuntimeError("the stream was not started")
        ended = self._job.wait(seconds)
        if ended and self._job.error is not None:
            raise self._job.error
        return ended

    def close(self) -> None:
        """Stop, from whatever thread."""
        super().close()
        if self._job is not None:
            self._job.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self, deliver: TakeTick) -> Job:
        if self._job is not None or self._updates is not None:
            raise RuntimeError("a stream has one consumer")
        self._job = self._scheduler().add(self.streamer, deliver)
        return self._job


@lru_cache(2**12)
def _text(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)
