"""The answers that readers follow: one for all who ask the same."""

import json
import logging
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, islice
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeAlias

from annotations.clock import Clock
from annotations.instants import format_instant
from tpf_client.errors import ClientError, ClosedError, LimitError
from tpf_client.fragments.fetcher import Statistics
from tpf_client.solutions import Solution, Solutions
from tpf_client.sparql.tokens import tokenize
from tpf_client.stream import Stream, TimedSolution, Update

# An answer that is kept up to date for many readers: server-sent events, computed once.
#
# The events of a reader, each with a JSON object as data:
#
# ===============  ================================================================================
# ``initial``      the whole answer: an update (`Update.to_json`) whose ``added`` is all of it
# ``update``       what changed, in the same form
# ``up-to-date``   all that is known was told: ``at``, ``now`` (the server's clock, when this is
#                  told), ``valid_until``, ``next_look``, ``dynamic``, ``rows``, ``late``: those
#                  that are there by grace alone; of this query so far: ``pages`` wanted,
#                  ``requests``, ``bytes``, ``cached`` pages; ``endpoint``: the last three of all
#                  queries together
# ``plan``         for readers that asked for it: the steps of the plan, with what was expected and
#                  what was done, as of the last evaluation (`Stream.plan`)
# ``error``        an evaluation failed; ``next_look`` says when it is tried again, ``null``: never
# ===============  ================================================================================
#
# ``initial`` and ``update`` have ids. A reader that says the last one that it saw gets what came
# after it, as far as that is kept, and else ``initial``.
#
# Source: the names are those of the draft SPARQL 1.1 Incremental Protocol (Ghent University);
# ``docs/client.md`` says where we differ.

_HEARTBEAT = 15.0
"""Seconds of silence after which a reader is told that the connection lives."""
LINGER = timedelta(seconds=30)
"""So long an answer that nobody reads is kept up to date: its readers may come back."""
_KEPT = 2**22
"""Characters of updates that are kept for readers that come back, or are slow."""


WorkCounts: TypeAlias = Callable[[], Mapping[str, int]]


def work_of(done: Statistics) -> dict[str, int]:
    """Return the counts of requests for events."""
    return {
        "requests": done.requests,
        "bytes": done.bytes,
        "cached": done.cache_hits + done.merged,
    }


def applied(rows: Sequence[TimedSolution], update: Update) -> list[TimedSolution]:
    """Apply an update to an answer, as a reader does."""
    removed = Counter(each.row for each in update.removed)
    result = []
    for each in rows:
        if removed[each.row]:
            removed[each.row] -= 1
        else:
            result.append(each)
    for index, each in update.placed():
        result.insert(len(result) if index is None else index, each)
    return result


def head_of(head: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of `Update.head` about the whole answer."""
    names = ("vars", "at", "valid_until", "next_look", "boolean")
    return {name: head[name] for name in names if name in head}


def status_of(
    update: Update, head: Mapping[str, Any], rows: int, all_work: Mapping[str, int]
) -> tuple[str, dict[str, Any]]:
    """Return the name and data of the event about an answer's state."""
    if update.error is not None:
        return "error", {name: head[name] for name in ("at", "error", "next_look")}
    names = ("at", "valid_until", "next_look", "dynamic", "warnings", "late")
    status = {name: head[name] for name in names if name in head}
    status |= {"rows": rows, "pages": update.pages}
    return "up-to-date", status | work_of(update.work) | {"endpoint": all_work}


def data_text(data: Mapping[str, Any], lists: Mapping[str, Sequence[Solution]]) -> str:
    """Write an event's data with lists of solutions as JSON."""
    text = json.dumps(data, ensure_ascii=False)
    for key, rows in lists.items():
        comma = ", " if len(text) > 2 else ""
        text = f'{text[:-1]}{comma}"{key}": [{", ".join([row.json_text() for row in rows])}]}}'
    return text


class LiveAnswer:
    """One continuous query and its followers. Thread-safe."""

    def __init__(
        self,
        stream: Stream,
        most_rows: int | None,
        work: WorkCounts,
        over: "Callable[[LiveAnswer], None]",
    ) -> None:
        self._stream = stream
        self._most_rows = most_rows
        self._work = work
        self._on_over = over
        self._run = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._followers: set[AnswerFollower] = set()
        self._rows: list[TimedSolution] = []
        self._head: dict[str, Any] = {}
        self._initial = ""
        self._kept: deque[str] = deque()
        self._kept_size = 0
        self._status = ""
        self._last_status: tuple[str, dict[str, Any]] = ("", {})
        self.looks = 0
        """How many evaluations there were, those that failed included."""
        self.plan = ""
        """The text of the event ``plan``."""
        self.last = 0
        self.left_at: datetime | None = None
        self.error: BaseException | None = None
        self.is_over = False

    def start(self) -> None:
        try:
            self._stream.start(self._take, self._end)
        except Exception as error:
            # Others may wait for it already.
            self._end(error)
            raise

    def close(self) -> None:
        self._stream.close()
        self._end(None)

    def follow(self, last_id: str | None, *, explain: bool) -> "AnswerFollower":
        """Add a follower that saw the event of this id."""
        follower = AnswerFollower(self, last_id, explain=explain)
        with self._lock:
            self.left_at = None
            self._followers.add(follower)
        return follower

    def leave(self, follower: "AnswerFollower", now: datetime) -> None:
        with self._lock:
            self._followers.discard(follower)
            if not self._followers:
                self.left_at = now

    def is_idle(self, now: datetime) -> bool:
        """True if nobody has followed for a while."""
        return self.left_at is not None and now - self.left_at >= LINGER

    def number_of(self, last_id: str | None) -> int:
        """Return the number of an event id; 0: none of ours."""
        run, _, number = (last_id or "").partition("-")
        if run != self._run or not (number.isascii() and number.isdecimal()) or len(number) > 18:
            return 0
        return int(number) if int(number) <= self.last else 0

    def after(self, number: int, looks: int) -> tuple[list[str], int, int]:
        """Return the texts of the later events, the last one's number, and the next `looks`."""
        with self._lock:
            texts = []
            missing = self.last - number
            if missing:
                if number == 0 or missing > len(self._kept):
                    texts.append(self._whole())
                else:
                    texts += [self._kept[n] for n in range(-missing, 0)]
            if self.looks != looks:
                # Who comes later than the evaluation is to know what time it is now.
                texts.append(self._status if looks or self.is_over else self._told())
            return texts, self.last, self.looks

    def _told(self) -> str:
        name, data = self._last_status
        return self._event(name, data | {"now": format_instant(self._stream.now())})

    def _whole(self) -> str:
        if not self._initial:
            rows = self._rows
            data = self._head | {"valid": [each.span_json() for each in rows]}
            self._initial = self._event("initial", data, self.last, {"added": rows, "removed": ()})
        return self._initial

    def _event(
        self,
        name: str,
        data: dict[str, Any],
        number: int | None = None,
        lists: Mapping[str, Sequence[Solution]] = MappingProxyType({}),
    ) -> str:
        marked = "" if number is None else f"id: {self._run}-{number}\n"
        return f"{marked}event: {name}\ndata: {data_text(data, lists)}\n\n"

    def _take(self, update: Update) -> None:
        with self._lock:
            placed = update.placed()
            head = update.head(placed)
            if update.error is None and (self.last == 0 or placed or update.removed):
                self._change(update, head, [each for _, each in placed])
            self._last_status = status_of(update, head, len(self._rows), self._work())
            plan_wanted = not self.plan or any(each.explain for each in self._followers)
            if update.error is None and plan_wanted:
                self.plan = self._event("plan", self._stream.plan())
            self._status = self._told()
            self.looks += 1
            followers = tuple(self._followers)
        for each in followers:
            each.wake()
        # By our clock: that of the update is the server's.
        if self.is_idle(self._stream.streamer.clock.now()):
            self.close()

    def _change(self, update: Update, head: dict[str, Any], added: Sequence[TimedSolution]) -> None:
        self._rows = applied(self._rows, update)
        if self._most_rows is not None and len(self._rows) > self._most_rows:
            raise LimitError(f"more than {self._most_rows} solutions")
        self.last += 1
        self._initial = ""
        self._head = head_of(head)
        if self.last == 1:
            return
        text = self._event("update", head, self.last, {"added": added, "removed": update.removed})
        self._kept.append(text)
        self._kept_size += len(text)
        while self._kept_size > _KEPT:
            self._kept_size -= len(self._kept.popleft())

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            if self.is_over:
                return
            self.error = error
            # Before it is told: who waits for the first evaluation holds no lock.
            self.is_over = True
            if error is not None:
                reason = str(error) if isinstance(error, ClientError) else "an internal error"
                self._status = self._event("error", {"error": reason, "next_look": None})
                self.looks += 1
            followers = tuple(self._followers)
        for each in followers:
            each.wake()
        self._on_over(self)


class AnswerFollower:
    """A follower of an answer; iterate over the texts to send."""

    def __init__(self, answer: LiveAnswer, last_id: str | None, *, explain: bool) -> None:
        self.answer = answer
        self.explain = explain
        self._last_id = last_id
        self._changed = threading.Event()
        self._ended = False

    def wake(self) -> None:
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self.wake()

    def begin(self) -> None:
        while not (self.answer.looks or self.answer.is_over or self._ended):
            self._changed.wait()
            self._changed.clear()
        if not self.answer.last and (self.answer.is_over or self._ended):
            error = self.answer.error
            raise error if isinstance(error, ClientError) else ClosedError("the query was closed")

    def __iter__(self) -> Iterator[str]:
        number, looks, plan = self.answer.number_of(self._last_id), 0, ""
        while not self._ended:
            self._changed.clear()
            over = self.answer.is_over
            texts, number, looks = self.answer.after(number, looks)
            if self.explain and self.answer.plan != plan:
                plan = self.answer.plan
                texts.append(plan)
            yield from texts
            if over:
                return
            if not texts and not self._changed.wait(_HEARTBEAT):
                yield ": still here\n\n"


# Bodies of answers that are sent as they come.

_CHUNK = 2**14
_PAUSE = 0.2

_log = logging.getLogger(__name__)


def begun(solutions: Solutions, form: str) -> Iterator[str]:
    """Yield the text of solutions after the first one: earlier failures have a status."""
    pieces = solutions.pieces(form)
    return chain(list(islice(pieces, 3)), pieces)


class StreamedBody:
    """The body of an incomplete answer; `done` is called at its end."""

    def __init__(self, pieces: Iterator[str], done: Callable[[], None]) -> None:
        self._pieces = pieces
        self._done = done

    def __iter__(self) -> Iterator[bytes]:
        waiting: list[str] = []
        size, sent = 0, monotonic() - _PAUSE
        try:
            for piece in self._pieces:
                waiting.append(piece)
                size += len(piece)
                if size >= _CHUNK or monotonic() - sent >= _PAUSE:
                    yield "".join(waiting).encode()
                    waiting, size, sent = [], 0, monotonic()
            if waiting:
                yield "".join(waiting).encode()
        except ClientError as error:
            # The status is gone already: only a connection that breaks off can tell.
            _log.warning("an answer was cut off: %r", str(error))
            raise ConnectionAbortedError(str(error)) from error

    def close(self) -> None:
        self._done()


class FollowedBody:
    """The body of an answer kept up to date; `done` is called at its end."""

    def __init__(self, follower: AnswerFollower, done: Callable[[], None]) -> None:
        self._follower = follower
        self._done = done

    def __iter__(self) -> Iterator[bytes]:
        for text in self._follower:
            for start in range(0, len(text), _CHUNK):
                yield text[start : start + _CHUNK].encode()

    def close(self) -> None:
        self._done()


@dataclass(frozen=True, slots=True)
class Wish:
    """A query to follow."""

    text: str
    max_interval: float | None = None
    grace: float = 0.0


Start: TypeAlias = Callable[[Wish], Stream]
"""Makes the stream of what somebody wants to follow."""


class LiveAnswers:
    """The followed answers: one for all who ask the same. Thread-safe.

    `most`: where there are so many, those that nobody follows end before their time.
    """

    def __init__(
        self, start: Start, clock: Clock, most_rows: int | None, work: WorkCounts, most: int
    ) -> None:
        self._start = start
        self._clock = clock
        self._most_rows = most_rows
        self._work = work
        self._most = most
        self._lock = threading.Lock()
        self._answers: dict[tuple[tuple[str, ...], Wish], LiveAnswer] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._answers)

    def follow(self, wish: Wish, last_id: str | None, *, explain: bool = False) -> AnswerFollower:
        """Follow a query, together with others who ask the same."""
        key = (tuple([token.text for token in tokenize(wish.text)]), replace(wish, text=""))
        self.sweep()
        with self._lock:
            if self._closed:
                raise ClosedError("the endpoint was closed")
            answer = self._answers.get(key)
            if answer is not None and not answer.is_over:
                return answer.follow(last_id, explain=explain)
            stream = self._start(wish)
            answer = LiveAnswer(stream, self._most_rows, self._work, self._forget)
            self._answers[key] = answer
            follower = answer.follow(last_id, explain=explain)
        answer.start()
        return follower

    def leave(self, follower: AnswerFollower) -> None:
        follower.end()
        follower.answer.leave(follower, self._clock.now())

    def sweep(self) -> None:
        """End answers that nobody has followed for a while."""
        now = self._clock.now()
        with self._lock:
            answers = self._answers.values()
            full = len(answers) >= self._most
            idle = [each for each in answers if each.is_idle(now) or (full and each.left_at)]
        for each in idle:
            each.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            answers = tuple(self._answers.values())
        for each in answers:
            each.close()

    def _forget(self, answer: LiveAnswer) -> None:
        with self._lock:
            for key, each in tuple(self._answers.items()):
                if each is answer:
                    del self._answers[key]
