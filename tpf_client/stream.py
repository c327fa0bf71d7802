"""A continuous query as its user sees it: a stream of updates."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from annotations.instants import LAST, format_instant
from annotations.terms import QuadPattern, Variable, is_variable
from tpf_client.errors import SourceError
from tpf_client.fragments.fetcher import Statistics
from tpf_client.planner.evaluation import Evaluation
from tpf_client.planner.explain import explain_plan, plan_tree, step_json
from tpf_client.planner.leaves import Step
from tpf_client.planner.live_fragment import LiveFragment, canonical_pattern
from tpf_client.solutions import Solution, data_frame, html_table, rdflib_graph
from tpf_client.sparql.algebra import Pattern, QueryForm, Row
from tpf_client.streaming.detection import Detected
from tpf_client.streaming.scheduler import Job, Scheduler
from tpf_client.streaming.streamer import PlannedQuery, Streamer, Tick
from tpf_client.streaming.validity import Span

if TYPE_CHECKING:
    import pandas
    import rdflib


# What of a continuous query is static, what is dynamic, and why, as text and as JSON.


def explain_stream(detected: Detected, evaluation: Evaluation, plan: Sequence[Step]) -> str:
    """Describe each dataset's labelling, and each step's changes, after an evaluation."""
    lines = [f"{each.source.url}: {each.labelling}" for each in detected.datasets]
    for number, step in enumerate(plan, 1):
        lines.append(f"{number}. {explain_plan([step]).removeprefix('1. ')}")
        kind, why = _change(step, evaluation)
        lines.append(f"   {kind}: {why}" if kind else f"   {why}")
    return "\n".join(lines)


def stream_json(
    detected: Detected,
    evaluation: Evaluation,
    plan: Sequence[Step],
    pattern: Pattern | None,
    began: datetime,
) -> dict[str, Any]:
    """Return the explanation and the plan as a JSON object."""
    steps = []
    for step in plan:
        kind, why = _change(step, evaluation)
        steps.append(step_json(step, began) | {"change": kind, "why": why})
    tree = [] if pattern is None else plan_tree(pattern, plan)
    return {"datasets": detected.datasets_json(), "steps": steps, "tree": tree}


def _change(step: Step, evaluation: Evaluation) -> tuple[str | None, str]:
    pattern = canonical_pattern(step.pattern)
    fragments = [each for each in evaluation.fragments() if _belongs(each, pattern)]
    facts = dict.fromkeys(quad for each in fragments for quad in each.quads())
    held = evaluation.held
    labels = [held.find(quad) for quad in facts if quad in held]
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
    due = min(each.next_reading(evaluation.freshness) for each in fragments)
    again = "" if due == LAST else f"; looked at again at {format_instant(due)}"
    return "static", f"none of {len(labels)} facts is labelled{again}"


def _belongs(fragment: LiveFragment, pattern: QuadPattern) -> bool:
    return all(
        is_variable(term) or term == other
        for term, other in zip(pattern, fragment.pattern, strict=True)
    )


class TimedSolution(Solution):
    """A solution of a continuous query, and when it holds, on the server's clock.

    Facts that change before their labels end, or that a query wants absent, may end it early.

    Attributes:
        valid_from: the latest start of its facts, or the evaluation's instant; ``None``: always.
        valid_until: the earliest end of its facts, or, where these are unknown (see
            ``docs/streaming.md``), of all facts read; exclusive.
    """

    __slots__ = ("valid_from", "valid_until")

    def __init__(self, variables: tuple[Variable, ...], row: Row, span: Span) -> None:
        super().__init__(variables, row)
        self.valid_from, self.valid_until = span

    def span_json(self) -> list[str | None]:
        """Return start and end as texts."""
        return [_text(self.valid_from), _text(self.valid_until)]


@dataclass(frozen=True, slots=True)
class Update:
    """The result of one evaluation; instants are on the server's clock.

    Args:
        added: new solutions, with multiplicity and validity.
        removed: solutions that are gone.
        valid_until: when the first fact read expires, if any does.
        error: why the evaluation failed; nothing changed, and it is tried again.
        warnings: errors in the data, each once.
        dynamic: the dataset can change at all.
        wakes_at: the next evaluation; ``None``: never.
        ordered: the query orders its answer.
        form: of the query. ASK is true where it has a solution; CONSTRUCT and DESCRIBE have
            distinct triples with ``subject``, ``predicate`` and ``object``.
        boolean: the answer of ASK; ``None``: unknown, or another form.
        pages: pages read so far, cached ones included.
        work: requests so far; shared ones count as merged for other queries.
        late: solutions present by grace alone: a label ended and was not renewed yet.
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
        """The names of the variables, without question marks."""
        return tuple(name[1:] for name in self._tick.variables)

    @property
    def results(self) -> list[TimedSolution]:
        """Return the whole answer as of the newest update, with multiplicities.

        Renewed facts may have changed when its solutions hold.
        """
        variables = self._tick.variables
        return [TimedSolution(variables, row, span) for row, span in self._tick.timed_answer()]

    def graph(self) -> "rdflib.Graph":
        """Return the graph of CONSTRUCT or DESCRIBE as of the newest update."""
        if self.form not in ("CONSTRUCT", "DESCRIBE"):
            raise ValueError(f"the answer of {self.form} is no graph")
        return rdflib_graph(self._tick.answer())

    def to_pandas(self) -> "pandas.DataFrame":
        """The whole answer as a table."""
        rows = self._tick.answer()
        return data_frame(self.variables, [Solution(self._tick.variables, row) for row in rows])

    def placed(self) -> list[tuple[int | None, TimedSolution]]:
        """Return the added solutions with their indexes in an ordered answer (else ``None``).

        Remove the removed ones from the last answer, then insert these in turn.
        """
        if not self.ordered or not self.added:
            return [(None, each) for each in self.added]
        new: dict[Row, list[TimedSolution]] = {}
        for each in self.added:
            new.setdefault(each.row, []).append(each)
        return [
            (index, new[row].pop()) for index, row in enumerate(self._tick.answer()) if new.get(row)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object: ISO 8601 instants, SPARQL JSON bindings.

        ``valid`` has the spans of added solutions, ``places`` their indexes in an ordered answer;
        ``boolean`` is the answer of ASK; ``late`` are solutions present by grace alone.
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
        """Return `to_json` without ``added`` and ``removed``, for a result of `placed`."""
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
            result["places"] = [index for index, _ in placed]
        if self.error is not None:
            result["error"] = str(self.error)
        if self.late:
            result["late"] = [solution.to_json() for solution in self.late]
        if self.warnings:
            result["warnings"] = list(self.warnings)
        return result


class Updates:
    """A continuous query, however it is read."""

    def __init__(
        self, streamer: Streamer, *, form: QueryForm = "SELECT", ordered: bool = False
    ) -> None:
        self.streamer = streamer
        self._form = form
        self._ordered = ordered
        self._answered = False

    def now(self) -> datetime:
        """The present on the server's clock, as far as that is known."""
        return self.streamer.now()

    def explain(self) -> str:
        """Explain what is static and dynamic, and why, after the first update."""
        running = self._running()
        return explain_stream(running.detected, running.evaluation, running.leaves.plan)

    def plan(self) -> dict[str, Any]:
        """Return `explain` as a JSON object, with the seconds of the last evaluation.

        Call it between two updates, in the thread that gets them.
        """
        running = self._running()
        explanation = stream_json(
            running.detected,
            running.evaluation,
            running.leaves.plan,
            running.output.pattern,
            self.streamer.began,
        )
        return explanation | {"seconds": self.streamer.took.total_seconds()}

    def _running(self) -> PlannedQuery:
        if self.streamer.running is None:
            raise RuntimeError("the stream was not started")
        return self.streamer.running

    def close(self) -> None:
        """Stop, from whatever thread."""
        self.streamer.close()

    def update(self, tick: Tick) -> Update:
        """Convert a tick for users."""
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

    The next evaluation waits until the last update was taken. Leaving the loop, `close`, or closing
    the client stops its requests.
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
        """Yield updates; the first one without an error holds the whole answer.

        Raises:
            SourceError: the first evaluation failed; later failures are updates with an error.
        """
        if self._job is not None:
            raise RuntimeError("a stream has one consumer")
        if self._updates is None:
            self._updates = map(self.update, self.streamer.ticks())
        return self._updates

    def start(
        self,
        on_update: Callable[[Update], object],
        on_end: Callable[[BaseException | None], object] = lambda _: None,
    ) -> Self:
        """Call `on_update` with every update, in a thread of the client; return at once.

        An error of the callback ends the stream; `on_end` is called at its end, with its error.
        """
        if self._job is not None or self._updates is not None:
            raise RuntimeError("a stream has one consumer")
        job = self._scheduler().add(self.streamer, lambda tick: on_update(self.update(tick)))
        self._job = job
        job.when_ended(lambda: on_end(job.error))
        return self

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until a started stream has ended; ``False`` on timeout.

        Raises:
            SourceError: its first evaluation failed.
            Exception: raised by its callback.
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

    def _ipython_display_(self) -> None:
        """Show the answer in a notebook: a table that is kept up to date until `close`."""
        from IPython.display import HTML, display

        shown = display(HTML("waiting for the first answer"), display_id=True)
        self.start(lambda update: shown.update(HTML(_html(update))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _html(update: Update) -> str:
    """The answer as a table, and what is known of it."""
    from html import escape  # not in a browser tab

    if update.form == "ASK":
        answer = str(update.boolean)
    else:
        answer = html_table(update.variables, update.results)
    until = f"valid until {_text(update.valid_until)}" if update.valid_until else "static"
    changed = f"+{len(update.added)} −{len(update.removed)} at {_text(update.at)}"
    state = until if update.error is None else f"<strong>{escape(str(update.error))}</strong>"
    return f"{answer}<small>{state} · {changed}</small>"


@lru_cache(2**12)
def _text(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)
