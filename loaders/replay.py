"""Play a recorded feed to a server, in real time or faster.

Where the server or this machine is too slow, later batches slip by the lag: none is left out, and
every fact holds for its whole (shortened) period.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from threading import Event

from annotations.clock import Clock
from annotations.errors import InstantError
from annotations.instants import format_instant, parse_instant, shifted, to_micros
from annotations.labels import Expiration, Interval, Label, Labelling
from annotations.namespaces import RDF, XSD
from annotations.terms import Quad, Term, iri, literal
from annotations.whole_files import replaced_file
from annotations.wording import counted
from loaders.errors import (
    PublishRefusedError,
    ReplayError,
    ServerUnreachableError,
    SettingError,
    StateError,
)
from loaders.progress import SILENT, Report
from loaders.publisher import Publisher
from loaders.sources.base import Feed, FeedBatch

# What a replay remembers on disk, so that it goes on after a stop: the last acknowledged batch.


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The progress of one replay; its `run` identifies batches after resumption."""

    replay: str
    run: str
    acknowledged: datetime | None = None

    def write(self, path: Path) -> None:
        values = asdict(self)
        if self.acknowledged is not None:
            values["acknowledged"] = format_instant(self.acknowledged)
        try:
            with replaced_file(path) as file:
                json.dump(values, file)
        except OSError as error:
            raise StateError(f"{path}: {error.strerror or error}") from error


def read_state(path: Path, replay: str) -> ReplayState | None:
    """Return the state in a file, if there is one.

    Raises:
        StateError: it is damaged, or belongs to another replay.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        acknowledged = values["acknowledged"]
        state = ReplayState(
            str(values["replay"]),
            str(values["run"]),
            None if acknowledged is None else parse_instant(acknowledged),
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, InstantError) as error:
        raise StateError(f"{path} is no state of a replay ({error})") from None
    if state.replay != replay:
        raise StateError(f"{path} belongs to another replay: {state.replay}")
    return state


_SLOWEST = 1e-6
"""The speed with which a day lasts for almost three thousand years."""
REFUSALS_OF_CONTENT = frozenset({400, 413, 422})
"""How servers refuse one batch, and may take the next one."""
_MOMENT = timedelta(microseconds=1)
_LABELS = 4
"""How often a batch is labelled anew before the replay gives up."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """The settings of a replay.

    Args:
        speed: seconds of the feed per second.
        until: first instant that is not played.
        original_instants: label with the feed's instants: to back-fill a history, or for servers on
            a clock of their own.
        lead: how long before its instant a batch is sent; at most half a period.
        state: file of the progress, for resumption.
        clock: an IRI whose value (``rdf:value``) is the time in the feed.

    Raises:
        SettingError: an invalid speed, an empty span, or a negative lead.
    """

    speed: float = 1.0
    start: datetime | None = None
    until: datetime | None = None
    labelling: Labelling = "expiration"
    original_instants: bool = False
    lead: timedelta = timedelta(0)
    state: Path | None = None
    clock: str | None = None
    zone: tzinfo = UTC

    def __post_init__(self) -> None:
        if not self.speed >= _SLOWEST:
            raise SettingError(
                f"the speed of a replay must be at least {_SLOWEST:g}, not {self.speed}"
            )
        if self.speed == float("inf") and not self.original_instants:
            raise SettingError("a replay without pauses needs --original-instants")
        if self.start is not None and self.until is not None and self.start >= self.until:
            raise SettingError("a replay must end after it starts")
        if self.lead < timedelta(0):
            raise SettingError("the lead of a replay cannot be negative")


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """A replay's result; `slipped` is the final delay."""

    batches: int
    facts: int
    retries: int
    slipped: timedelta
    completed: bool


class TimeShift:
    """Maps instants of the feed to the present."""

    def __init__(self, feed: datetime, clock: Clock, speed: float) -> None:
        self.clock = clock
        self._feed = feed
        self._present = clock.now()
        self._speed = speed
        self.slipped = timedelta(0)

    def present(self, instant: datetime) -> datetime:
        """Return when an instant of the feed is played."""
        return shifted(self._present, (instant - self._feed) / self._speed)

    def slip(self, at: datetime) -> bool:
        """Move everything that is still to come, if an instant has been missed."""
        lag = self.clock.now() - self.present(at)
        if lag > timedelta(0):
            self._present += lag
            self.slipped += lag
        return lag > timedelta(0)


def replay(
    feed: Feed,
    publisher: Publisher,
    clock: Clock,
    settings: ReplaySettings,
    cancelled: Event | None = None,
    report: Report = SILENT,
    on_batch: Callable[[FeedBatch, Label], None] | None = None,
) -> ReplaySummary:
    """Play a feed to a server until it ends or is stopped.

    Raises:
        InputError: the feed is malformed.
        PublishRefusedError: the server refuses a batch.
        ServerUnreachableError: the server does not answer.
        StateError: see `read_state`.
        ReplayError: the labels end before the server can take them.
    """
    cancelled = cancelled or Event()
    state, start = _resume(feed, publisher, clock, settings)
    batches = (batch for batch in feed.batches(start, settings.until) if batch.quads)
    done = facts = retries = 0
    first = next(batches, None)
    if first is None:
        return ReplaySummary(0, 0, 0, timedelta(0), completed=True)
    timeline = TimeShift(first.at, clock, settings.speed)
    paced = settings.speed != float("inf")
    for batch in chain((first,), batches):
        if cancelled.is_set():
            break
        batch = _with_time(batch, settings)
        if paced and not _await(batch, timeline, settings, cancelled):
            break
        identifier = batch_id(feed.name, state.run, batch, settings.labelling)
        try:
            label, attempts = _publish(batch, identifier, publisher, timeline, settings, cancelled)
        except PublishRefusedError as error:
            if batch.refused is None or error.status not in REFUSALS_OF_CONTENT:
                raise
            batch.refused(str(error))
            continue
        except ServerUnreachableError:
            if cancelled.is_set():
                break
            raise
        done += 1
        facts += len(batch.quads)
        retries += attempts - 1
        state = ReplayState(state.replay, state.run, batch.at)
        if settings.state is not None:
            state.write(settings.state)
        report.done(done)
        if on_batch is not None:
            on_batch(batch, label)
    else:
        return ReplaySummary(done, facts, retries, timeline.slipped, completed=True)
    return ReplaySummary(done, facts, retries, timeline.slipped, completed=False)


def _with_time(batch: FeedBatch, settings: ReplaySettings) -> FeedBatch:
    if settings.clock is None:
        return batch
    time = literal(batch.at.astimezone(settings.zone).isoformat(), datatype=f"{XSD}dateTime")
    quad = Quad(iri(settings.clock), Term(f"<{RDF}value>"), time)
    return batch._replace(quads=(*batch.quads, quad))


def _await(
    batch: FeedBatch, timeline: TimeShift, settings: ReplaySettings, cancelled: Event
) -> bool:
    if timeline.slip(batch.at):
        return True
    lead = min(settings.lead, (batch.until - batch.at) / settings.speed / 2)
    return timeline.clock.wait_until(timeline.present(batch.at) - lead, cancelled)


def _publish(
    batch: FeedBatch,
    identifier: str,
    publisher: Publisher,
    timeline: TimeShift,
    settings: ReplaySettings,
    cancelled: Event,
) -> tuple[Label, int]:
    attempts = 0
    for _ in range(_LABELS):
        label = _label(batch, timeline, settings)
        try:
            attempts += publisher.publish(batch.quads, label, identifier, cancelled)
            return label, attempts
        except PublishRefusedError:
            if settings.original_instants or timeline.clock.now() < label.end:
                raise
            attempts += 1
            timeline.slip(batch.at)
    holds = (batch.end - batch.at).total_seconds() / settings.speed
    raise ReplayError(
        f"a batch holds for {holds:.3f} s, and that is over before the server takes it: "
        f"lower the speed"
    )


def batch_id(feed: str, run: str, batch: FeedBatch, labelling: Labelling) -> str:
    """Return a batch's identifier, the same for each attempt at the same statements."""
    content = repr((labelling, batch.since, batch.end, batch.quads)).encode()
    return f"{feed}-{run}-{to_micros(batch.at)}-{blake2b(content, digest_size=16).hexdigest()}"


def _resume(
    feed: Feed, publisher: Publisher, clock: Clock, settings: ReplaySettings
) -> tuple[ReplayState, datetime | None]:
    identity = f"{feed.name} to {publisher.url}, {settings.labelling}"
    if settings.original_instants:
        # Back-filling the same feed twice is the same batch twice.
        identity += ", original instants"
    state = None if settings.state is None else read_state(settings.state, identity)
    if state is None:
        run = "original" if settings.original_instants else str(to_micros(clock.now()))
        state = ReplayState(identity, run)
        if settings.state is not None:
            state.write(settings.state)
    start = settings.start
    if state.acknowledged is not None:
        after = state.acknowledged + _MOMENT
        start = after if start is None else max(start, after)
    return state, start


def _label(batch: FeedBatch, timeline: TimeShift, settings: ReplaySettings) -> Label:
    start, end = batch.since or batch.at, batch.end
    if not settings.original_instants:
        start, end = timeline.present(start), timeline.present(end)
        # However fast it is played, it holds for a moment.
        end = max(end, shifted(start, _MOMENT))
    return Expiration(end) if settings.labelling == "expiration" else Interval(start, end)


def replay_line(summary: ReplaySummary) -> str:
    """One line for the user."""
    words = [f"{counted(summary.facts, 'fact')} in {counted(summary.batches, 'batch', 'batches')}"]
    if summary.retries:
        words.append(f"{summary.retries} sent again")
    if summary.slipped >= timedelta(seconds=0.1):
        words.append(f"{summary.slipped.total_seconds():.1f} s behind the schedule")
    if not summary.completed:
        words.append("stopped")
    return ", ".join(words)
