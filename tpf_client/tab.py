"""Queries of a page, evaluated in its web worker (Pyodide) or any event loop.

The worker calls `start` and `stop`. Events go to ``post`` as JSON texts ``{"id": …, "event": name,
"data": {…}}``, none for a query after `stop`. A message to `start` is a JSON object:

================  ==============================================================================
``id``            names the query: a string or number
``sources``       URLs of datasets, read as one
``query``         SPARQL 1.1
``mode``          ``watch``, ``once``, ``estimate``, ``check`` (parse it), or ``words`` (the
                  predicates and classes of the datasets)
``at``            with ``once``: an instant in the past (ISO 8601)
``min-interval``  with ``watch``, as ``max-interval`` and ``grace``: seconds; see `Client.stream`
================  ==============================================================================

Events of ``watch``, the first four as of ``tpf-query serve``:

==============  ================================================================================
``initial``     the whole answer: ``vars``, ``at``, ``valid_until``, ``next_look``, ``added``
                (SPARQL JSON bindings), ``valid`` (their spans), ``removed``, ``boolean``
``update``      the changes in the same form, with ``places`` where the query orders
``up-to-date``  after each evaluation: its instants, ``dynamic``, ``rows``, ``late``, ``warnings``,
                ``pages``, ``requests``, ``bytes``, ``cached``, ``endpoint`` (of all queries)
``plan``        then, too: ``datasets``, ``steps``, ``tree``, ``seconds``
``error``       a failed evaluation: ``error``, ``at``, ``now``, ``next_look`` (null: given up)
``work``        before the first answer: ``requests``, ``bytes``, ``cached``, ``endpoint``
``refused``     an invalid query; the last event: ``status`` 400, ``text``, ``line``, ``column``
==============  ================================================================================

``once`` gives ``rows`` as they come, ``work``, then ``done``, ``refused`` or ``failed``; triples
are rows of ``subject``, ``predicate`` and ``object``. Other modes give one event: ``words``,
``estimate`` (``facts``, ``labelled``, ``plan``), ``checked``, ``refused`` or ``failed``.
"""

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from annotations.instants import format_instant, parse_instant
from tpf_client.async_client import AsyncClient, AsyncStream
from tpf_client.errors import (
    ClientError,
    LimitError,
    QueryError,
    QuerySyntaxError,
)
from tpf_client.fragments.fetcher import Statistics
from tpf_client.fragments.responses import Limits
from tpf_client.live_answers import applied, data_text, head_of, status_of, work_of
from tpf_client.solutions import Solution
from tpf_client.stream import TimedSolution, Update

Post: TypeAlias = Callable[[str], object]
"""Takes the JSON text of an event."""

_LIMITS: Final = Limits(max_query_requests=5_000, max_query_bytes=2**27)
"""What one evaluation may read: more than that a tab is not for."""
_RECHECK: Final = 60.0
"""Seconds between looks at data of which nothing is labelled."""
_CLIENTS: Final = 4
"""Clients that are kept for further queries over the same datasets."""
_PAUSE: Final = 0.25
"""Seconds between two events that tell how much was requested."""
_ROWS: Final = 500
"""Rows of an event ``rows`` at most."""
_LONGEST_PAUSE: Final = 60.0
"""Seconds until a query that failed is tried again, at most."""
_MODES: Final = ("watch", "once", "estimate", "check", "words")
_NO_LISTS: Final[Mapping[str, Sequence[Solution]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TabMessage:
    """A message to `start`; see above."""

    id: str | int
    sources: tuple[str, ...]
    mode: str
    query: str
    at: datetime | None
    min_interval: float
    max_interval: float | None
    grace: float


def read_message(text: str) -> TabMessage:
    """Parse a message; `ValueError` if it is invalid."""
    given = json.loads(text)
    if not isinstance(given, dict) or not isinstance(given.get("id"), str | int):
        raise ValueError("a message is an object with an id")
    sources, mode = given.get("sources"), given.get("mode", "watch")
    if not isinstance(sources, list) or not sources or not all(map(_is_text, sources)):
        raise ValueError("sources: not a list of URLs")
    if mode not in _MODES:
        raise ValueError(f"mode: not {', '.join(_MODES)}: {mode!r}")
    at = given.get("at")
    return TabMessage(
        given["id"],
        tuple(sources),
        mode,
        str(given.get("query", "")),
        None if at in (None, "") else parse_instant(str(at)),
        _seconds(given, "min-interval", 1.0) or 0.0,
        _seconds(given, "max-interval", None),
        _seconds(given, "grace", 0.0) or 0.0,
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _seconds(given: Mapping[str, Any], name: str, default: float | None) -> float | None:
    value = given.get(name)
    return default if value in (None, "") else float(value)


class Tab:
    """The queries of a worker, all in one event loop."""

    def __init__(self) -> None:
        self._tasks: dict[str | int, asyncio.Task[None]] = {}
        self._clients: dict[tuple[str, ...], AsyncClient] = {}

    def start(self, message: TabMessage, post: Post) -> None:
        self.stop(message.id)
        client = self._client(message.sources)
        query = _Query(message, client, self._work, post)
        task = asyncio.get_running_loop().create_task(query.run())
        self._tasks[message.id] = task
        task.add_done_callback(lambda done: self._ended(message.id, done))

    def stop(self, query_id: str | int) -> None:
        task = self._tasks.pop(query_id, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        tasks = tuple(self._tasks.values())
        for query_id in tuple(self._tasks):
            self.stop(query_id)
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    def _ended(self, query_id: str | int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(query_id) is task:
            del self._tasks[query_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def _client(self, sources: tuple[str, ...]) -> AsyncClient:
        client = self._clients.pop(sources, None) or AsyncClient(*sources, limits=_LIMITS)
        self._clients[sources] = client
        while len(self._clients) > _CLIENTS:
            # Whoever still uses it has a reference of his own.
            del self._clients[next(iter(self._clients))]
        return client

    def _work(self) -> dict[str, int]:
        works = [work_of(client.statistics) for client in self._clients.values()]
        return {name: sum(each[name] for each in works) for name in work_of(Statistics())}


class _Query:
    def __init__(
        self,
        message: TabMessage,
        client: AsyncClient,
        all_work: Callable[[], dict[str, int]],
        post: Post,
    ) -> None:
        self._message = message
        self._client = client
        self._all_work = all_work
        self._post = post

    async def run(self) -> None:
        """Answer it, to its end or until it is cancelled."""
        modes = (self._watch, self._once, self._estimate, self._check, self._words)
        try:
            await dict(zip(_MODES, modes, strict=True))[self._message.mode]()
        except QueryError as error:
            self._tell("refused", _refusal(error))
        except (ClientError, ValueError) as error:
            self._tell("failed", {"error": str(error)})

    def _tell(
        self,
        name: str,
        data: Mapping[str, Any],
        lists: Mapping[str, Sequence[Solution]] = _NO_LISTS,
    ) -> None:
        head = json.dumps({"id": self._message.id, "event": name})
        self._post(f'{head[:-1]}, "data": {data_text(data, lists)}}}')

    async def _tell_work(self, done: Callable[[], Statistics]) -> None:
        last: dict[str, int] = {}
        while True:
            await asyncio.sleep(_PAUSE)
            work = work_of(done())
            if work != last:
                last = work
                self._tell("work", work | {"endpoint": self._all_work()})

    async def _words(self) -> None:
        words = await self._client.words()
        self._tell("words", {"predicates": words.predicates, "classes": words.classes})

    async def _estimate(self) -> None:
        estimate = await self._client.estimate(self._message.query)
        self._tell("estimate", asdict(estimate))

    async def _check(self) -> None:
        self._client.query(self._message.query)
        self._tell("checked", {})

    async def _once(self) -> None:
        answer = self._client.query(self._message.query, at=self._message.at)
        telling = asyncio.ensure_future(self._tell_work(lambda: answer.work))
        rows, count, last = list[Solution](), 0, 0.0

        def flush() -> None:
            data: dict[str, Any] = {
                "vars": answer.variables,
                "valid": [[None, None]] * len(rows),
            }
            if answer.ordered:
                data["places"] = list(range(count - len(rows), count))
            self._tell("rows", data, {"added": rows})
            rows.clear()

        try:
            if answer.form == "ASK":
                empty = {"vars": (), "added": (), "valid": (), "boolean": await answer.ask()}
                self._tell("rows", empty)
            else:
                async for solution in answer:
                    rows.append(solution)
                    count += 1
                    if len(rows) >= _ROWS or monotonic() - last > _PAUSE:
                        flush()
                        last = monotonic()
                if rows or not count:
                    flush()
        finally:
            telling.cancel()
        work = work_of(answer.work) | {"endpoint": self._all_work()}
        self._tell("done", {"rows": count} | work)

    async def _watch(self) -> None:
        failures = 0
        while True:
            stream = self._client.stream(
                self._message.query,
                min_interval=self._message.min_interval,
                max_interval=self._message.max_interval,
                grace=self._message.grace,
                keep_checking=_RECHECK,
                quiet=True,
                explain=True,
            )
            telling = asyncio.ensure_future(self._tell_work(partial(_work_of, stream)))
            rows: list[TimedSolution] | None = None
            try:
                async for update in stream:
                    telling.cancel()
                    rows = self._take(update, rows)
                    now = {"now": format_instant(stream.now())}
                    name, status = status_of(update, update.head(()), len(rows or ()),
                                             self._all_work())  # fmt: skip
                    self._tell(name, status | now)
                    if update.error is None:
                        failures = 0
                        self._tell("plan", stream.plan())
                return
            except LimitError as error:
                self._failed(f"{error}: narrow the query, or run it once", None)
                return
            except QueryError:
                raise
            except ClientError as error:
                failures += 1
                pause = min(2.0 ** (failures - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1)  # noqa: S311
                self._failed(str(error), pause)
                await asyncio.sleep(pause)
            finally:
                telling.cancel()

    def _failed(self, reason: str, pause: float | None) -> None:
        now = self._client.clock.now()
        again = None if pause is None else format_instant(now + timedelta(seconds=pause))
        at = format_instant(now)
        self._tell("error", {"error": reason, "at": at, "now": at, "next_look": again})

    def _take(self, update: Update, rows: list[TimedSolution] | None) -> list[TimedSolution] | None:
        if update.error is not None:
            return rows
        placed = update.placed()
        update_head = update.head(placed)
        present = applied(rows or (), update)
        if rows is None:
            head = head_of(update_head) | {"valid": [each.span_json() for each in present]}
            self._tell("initial", head, {"added": present, "removed": ()})
        elif placed or update.removed:
            added = [each for _, each in placed]
            self._tell("update", update_head, {"added": added, "removed": update.removed})
        return present


def _work_of(stream: AsyncStream) -> Statistics:
    return stream.streamer.work


def _refusal(error: QueryError) -> dict[str, Any]:
    text, line, column = str(error), None, None
    if isinstance(error, QuerySyntaxError):
        text, line, column = f"{error}\n{error.pointed}", error.line, error.column
    return {"status": 400, "text": text, "line": line, "column": column}


_tab = Tab()


def start(message: str, post: Post) -> None:
    """Start the query of a message; return at once."""
    _tab.start(read_message(message), post)


def stop(query_id: str | int) -> None:
    """Stop a query and its requests, if it is running."""
    _tab.stop(query_id)
