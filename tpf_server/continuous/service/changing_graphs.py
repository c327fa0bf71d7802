"""Static graphs that change: live facts of datasets, and graphs of other servers.

Changes are read outside the lock of the service; only their delta is applied inside.
"""

import heapq
import itertools
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol, TypeAlias
from urllib.parse import quote, urljoin, urlsplit

import pyoxigraph as ox
import requests
import urllib3
from requests.utils import get_auth_from_url, urldefragauth
from uritemplate import URITemplate
from uritemplate.variable import VariableValue

from annotations.clock import Clock
from annotations.instants import format_instant, to_micros
from annotations.namespaces import HYDRA, RDF
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    QuadPattern,
    Term,
    is_iri,
    is_literal,
    is_variable,
    literal_parts,
)
from annotations.urls import origin_of, parameter_of_term
from tpf_server.continuous.runtime.errors import RemoteGraphError
from tpf_server.continuous.runtime.static.service_clauses import ServiceClause
from tpf_server.continuous.runtime.static.static_data import MemoryGraph, StaticData, StoreGraph
from tpf_server.continuous.runtime.static.static_rows import Preparation
from tpf_server.errors import StoreError
from tpf_server.store.live.store import LiveStore
from tpf_server.store.protocols import Standing
from tpf_server.store.static.ox_terms import read_quads

# The facts of a live store that are valid now, kept so by batches and by instants that pass.


@dataclass(slots=True, eq=False)
class _Version:
    row: int
    quad: Quad
    start: int
    end: int
    stands: bool = True
    valid: bool = False


_News: TypeAlias = tuple[bool, Sequence[int], Sequence[Standing]]


class LiveFacts:
    """Follow the valid facts of a live store (a `Follower`).

    The store's threads only queue changes; `changes` takes them, in one thread at a time. A change
    costs the logarithm of the versions that wait for their start or end.
    """

    def __init__(self) -> None:
        self._news: deque[_News] = deque()
        self._standing: dict[int, _Version] = {}
        self._due: list[tuple[int, int, _Version]] = []
        self._numbers = itertools.count()
        self._valid: Counter[Quad] = Counter()

    def begin(self, versions: Sequence[Standing]) -> None:
        self._news.append((True, (), versions))

    def change(self, removed: Sequence[int], added: Sequence[Standing]) -> None:
        self._news.append((False, removed, added))

    def changes(self, now: int) -> Mapping[Quad, bool]:
        """Take the delta since the last call: true for new quads, false for others."""
        before: dict[Quad, bool] = {}
        while self._news:
            anew, removed, added = self._news.popleft()
            for row in tuple(self._standing) if anew else removed:
                version = self._standing.pop(row, None)
                if version is not None:
                    version.stands = False
                    self._set(version, holds=False, before=before)
            for row, quad, start, end in added:
                if end > now:
                    version = self._standing[row] = _Version(row, quad, start, end)
                    self._look(version, now, before)
        while self._due and self._due[0][0] <= now:
            _, _, version = heapq.heappop(self._due)
            if version.stands:
                self._look(version, now, before)
        if len(self._due) > 2 * len(self._standing) + 64:
            self._due = [each for each in self._due if each[2].stands]
            heapq.heapify(self._due)
        return {
            quad: quad in self._valid
            for quad, was in before.items()
            if was != (quad in self._valid)
        }

    def _look(self, version: _Version, now: int, before: dict[Quad, bool]) -> None:
        if now >= version.end:
            version.stands = False
            if self._standing.get(version.row) is version:
                del self._standing[version.row]
            self._set(version, holds=False, before=before)
            return
        holds = now >= version.start
        self._set(version, holds=holds, before=before)
        until = version.end if holds else version.start
        heapq.heappush(self._due, (until, next(self._numbers), version))

    def _set(self, version: _Version, *, holds: bool, before: dict[Quad, bool]) -> None:
        if version.valid == holds:
            return
        version.valid = holds
        quad = version.quad
        before.setdefault(quad, quad in self._valid)
        if holds:
            self._valid[quad] += 1
        else:
            self._valid[quad] -= 1
            if not self._valid[quad]:
                del self._valid[quad]


_log: Final = logging.getLogger(__name__)
_ACCEPT: Final = "application/trig, application/n-quads;q=.9, text/turtle;q=.8, */*;q=.1"
_NEXT: Final = frozenset({f"{HYDRA}next", f"{HYDRA}nextPage"})
_SECONDS: Final = 30.0
"""That an answer may be silent."""
_READING_SECONDS: Final = 600.0
"""That a graph may take, with all its pages."""
_REDIRECTS: Final = 5
_BYTES: Final = 2**26
"""Of an answer."""
_TRIPLES: Final = 2**20
"""Of a graph."""


def _credentials(url: str) -> tuple[str, str] | None:
    with suppress(ValueError):  # no URL, which is said when it is read
        auth = get_auth_from_url(url)
        return auth if any(auth) else None
    return None


class RemoteGraph:
    """The graph of a fragment, with all its pages, or of an RDF document."""

    def __init__(self, name: Term, url: str, session: requests.Session) -> None:
        self.name = name
        # Credentials are for the server alone: the URL is shown.
        self._auth = _credentials(url)
        self._url = urldefragauth(url) if self._auth else url
        self._session = session
        self._held: frozenset[Quad] = frozenset()
        self._news: deque[Mapping[Quad, bool]] = deque()
        self._state: dict[str, Any] = {"state": "not read yet"}
        self._reading = threading.Lock()
        self._asking: threading.Thread | None = None
        self._late = threading.Event()
        self._count = 0

    @property
    def state(self) -> dict[str, Any]:
        """URL, time and outcome of the last reading."""
        return {"graph": self.name[1:-1], "url": self._url, **self._state}

    def changes(self, _now: int) -> Mapping[Quad, bool]:
        """Take the delta since the last call."""
        result: dict[Quad, bool] = {}
        while self._news:
            for quad, there in self._news.popleft().items():
                # What came and went in between, or the other way round, has not changed.
                if result.pop(quad, None) is None:
                    result[quad] = there
        return result

    def read(self, at: str) -> None:
        """Read again; a failure keeps the graph and is in the state."""
        with self._reading:
            try:
                read = self._read_in_time()
            except RemoteGraphError as error:
                self._fail(str(error), at)
            except Exception as error:  # noqa: BLE001 - whoever reads it reads others as well
                _log.exception("%s cannot be read", self._url)
                self._fail(f"{self._url}: {error!r}", at)
            else:
                self._hold(read)
                self._state = {"state": "read", "read": at, "triples": len(read)}

    def _fail(self, reason: str, at: str) -> None:
        kept = {"read": self._state["read"]} if "read" in self._state else {}
        self._hold(self._failing())
        self._state = {"state": "failed", "reason": reason, "failed": at, **kept}

    def _read_in_time(self) -> frozenset[Quad]:
        """Read in a thread: sockets limit only the time between two bytes."""
        if self._asking is not None and self._asking.is_alive():
            raise RemoteGraphError(f"{self._url}: an answer that takes too long still comes")
        result: list[frozenset[Quad] | Exception] = []

        def ask() -> None:
            try:
                result.append(frozenset(self._quads()))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                result.append(error)

        self._late.clear()
        self._count = 0
        self._asking = threading.Thread(target=ask, name="remote graph", daemon=True)
        self._asking.start()
        self._asking.join(_READING_SECONDS)
        if self._asking.is_alive():
            self._late.set()
            raise RemoteGraphError(f"{self._url}: not read in {_READING_SECONDS:g} s")
        (read,) = result
        if isinstance(read, Exception):
            raise read
        return read

    def _hold(self, read: frozenset[Quad]) -> None:
        gone = dict.fromkeys(self._held - read, False)
        self._news.append(gone | dict.fromkeys(read - self._held, True))
        self._held = read

    def _failing(self) -> frozenset[Quad]:
        return self._held

    def _quads(self) -> Iterator[Quad]:
        return self._fragment(self._url)

    def _fragment(self, start: str) -> Iterator[Quad]:
        url: str | None = start
        seen: set[str] = set()
        while url is not None and url not in seen:
            seen.add(url)
            page, url = self._page(url)
            self._count += len(page)
            if self._count > _TRIPLES:
                raise RemoteGraphError(f"{self._url}: more than {_TRIPLES} triples")
            yield from page

    def _page(self, url: str) -> tuple[list[Quad], str | None]:
        result, following = [], None
        for quad in self._parsed(url):
            if quad.predicate[1:-1] in _NEXT and is_iri(quad.object):
                following = quad.object[1:-1]
            # What is said about the page is in a graph of its own.
            if not quad.graph:
                result.append(quad._replace(graph=self.name))
        if following is not None and origin_of(following) != origin_of(url):
            raise RemoteGraphError(f"{url}: its next page is of another origin: {following}")
        return result, following

    def _parsed(self, url: str) -> list[Quad]:
        body, kind = self._body(url)
        rdf_format = ox.RdfFormat.from_media_type(kind)
        if rdf_format is None:
            raise RemoteGraphError(f"{url}: {kind or 'an answer of no type'} is no RDF")
        try:
            return list(read_quads(body, rdf_format, base=url))
        except (SyntaxError, ValueError) as error:
            raise RemoteGraphError(f"{url}: {error}") from error

    def _body(self, url: str) -> tuple[bytes, str]:
        try:
            with self._opened(url) as answer:
                if not answer.ok:
                    raise RemoteGraphError(f"{url}: HTTP {answer.status_code} {answer.reason}")
                content = bytearray()
                while chunk := answer.raw.read1(2**16, decode_content=True):
                    content += chunk
                    if self._late.is_set():
                        raise RemoteGraphError(f"{url}: takes too long")
                    if len(content) > _BYTES:
                        raise RemoteGraphError(f"{url}: more than {_BYTES >> 20} MB")
                return bytes(content), answer.headers.get("Content-Type", "").split(";")[0]
        except requests.Timeout as error:
            raise RemoteGraphError(f"{url}: no answer in time") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise RemoteGraphError(f"{url}: no answer, or one that is cut short") from error

    def _opened(self, url: str) -> requests.Response:
        target = url
        for _ in range(_REDIRECTS + 1):
            try:
                answer = self._session.get(
                    target, headers={"Accept": _ACCEPT}, timeout=_SECONDS, stream=True,
                    allow_redirects=False, auth=self._auth,
                )  # fmt: skip
                if not answer.is_redirect:
                    return answer
                answer.close()
                target = urljoin(target, answer.headers["Location"])
            except requests.RequestException:
                raise
            except ValueError as error:  # also of requests, which looks at the field
                raise RemoteGraphError(f"{url}: redirects to no URL: {error}") from None
            if origin_of(target) != origin_of(url):
                raise RemoteGraphError(f"{url}: redirects to another origin: {target}")
        raise RemoteGraphError(f"{url}: more than {_REDIRECTS} redirects")


# What SERVICE clauses ask of fragment servers and SPARQL endpoints, read again and again.
#
# Of a fragment server the fragment of each triple pattern is read, by the form that its pages
# have; of an endpoint what it constructs of the patterns.
#
# Source: paper 000, section 4.3; SPARQL 1.1 Protocol; Triple Pattern Fragments.


class RemoteService(RemoteGraph):
    """The graph of a SERVICE clause."""

    def __init__(self, clause: ServiceClause, session: requests.Session) -> None:
        super().__init__(clause.graph, clause.endpoint[1:-1], session)
        self.clause = clause
        self._form: tuple[URITemplate, dict[str, str]] | None = None
        self._constructs = False

    @property
    def state(self) -> dict[str, Any]:
        """URL, time and outcome of the last request."""
        result = super().state
        del result["graph"], result["url"]
        return {"service": self._url, **result}

    @property
    def reason(self) -> str | None:
        """Return why the graph is not up to date, or ``None``."""
        state = self.state
        if state["state"] == "read":
            return None
        return f"SERVICE <{self._url}>: {state.get('reason', state['state'])}"

    def _failing(self) -> frozenset[Quad]:
        return frozenset([self.clause.failure]) if self.clause.silent else super()._failing()

    def _quads(self) -> Iterator[Quad]:
        if not self._url.startswith(("http://", "https://")) or origin_of(self._url) is None:
            raise RemoteGraphError(f"{self._url} is at no http(s) URL")
        if self._form is None and not self._constructs:
            self._form = self._form_of_server()
        if self._form is None:
            for part in self.clause.parts:
                yield from self._fragment(_constructing(self._url, part))
            self._constructs = True
            return
        template, variables = self._form
        for pattern in {each for part in self.clause.parts for each in part}:
            yield from self._fragment(_expanded(template, variables, pattern))

    def _form_of_server(self) -> tuple[URITemplate, dict[str, str]] | None:
        try:
            quads = self._parsed(self._url)
        except RemoteGraphError:
            # An endpoint may refuse to be asked nothing; whether it is one shows when it is asked.
            return None
        objects: dict[tuple[Term, str], list[Term]] = {}
        for quad in quads:
            objects.setdefault((quad.subject, quad.predicate[1:-1]), []).append(quad.object)
        for (form, predicate), templates in objects.items():
            if predicate != f"{HYDRA}template":
                continue
            variables = {}
            for mapping in objects.get((form, f"{HYDRA}mapping"), ()):
                # A mapping has one property and one variable.
                properties = objects.get((mapping, f"{HYDRA}property"))
                names = objects.get((mapping, f"{HYDRA}variable"))
                if properties and names:
                    variables[_value(properties[0]).removeprefix(RDF)] = _value(names[0])
            template = _value(templates[0])
            if origin_of(template) is None:
                raise RemoteGraphError(f"{self._url}: its form is at no URL: {template}")
            template = urljoin(self._url, template)
            if origin_of(template) != origin_of(self._url):
                raise RemoteGraphError(f"{self._url}: its form is of another origin: {template}")
            if {"subject", "predicate", "object"} <= variables.keys():
                try:
                    return URITemplate(template), variables
                except ValueError as error:
                    raise RemoteGraphError(f"{self._url}: its form: {error}") from error
        return None


def _value(term: Term) -> str:
    return literal_parts(term).lexical if is_literal(term) else term.strip("<>")


def _expanded(template: URITemplate, variables: dict[str, str], pattern: QuadPattern) -> str:
    values: dict[str, VariableValue] = {
        variables[index]: parameter_of_term(term)
        for index, term in zip(("subject", "predicate", "object"), pattern[:3], strict=True)
        if not is_variable(term)
    }
    return template.expand(values)


def _constructing(url: str, part: tuple[QuadPattern, ...]) -> str:
    text = " . ".join(" ".join(pattern[:3]) for pattern in part)
    query = quote(f"CONSTRUCT {{ {text} }} WHERE {{ {text} }}", safe="")
    return f"{url}{'&' if urlsplit(url).query else '?'}query={query}"


class RemoteGraphs:
    """Read graphs periodically, `interval` after the last round, in a daemon thread."""

    def __init__(
        self,
        graphs: Mapping[Term, str],
        clock: Clock,
        interval: timedelta,
        session: requests.Session | None = None,
    ) -> None:
        self._session = session or requests.Session()
        self.graphs: Sequence[RemoteGraph] = [
            RemoteGraph(name, url, self._session) for name, url in graphs.items()
        ]
        self._further: dict[RemoteGraph, None] = {}
        self._clock = clock
        self._interval = interval
        self._lock = threading.Lock()
        self._started = self._running = False
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin, or wait for the first graph."""
        self._started = True
        if self.graphs or self._further:
            self._run_apart()

    def add(self, clause: ServiceClause) -> RemoteService:
        """Read the graph of a SERVICE clause, too."""
        graph = RemoteService(clause, self._session)
        with self._lock:
            self._further[graph] = None
        if self._started:
            self._run_apart()
        return graph

    def drop(self, graph: RemoteGraph) -> None:
        with self._lock:
            self._further.pop(graph, None)

    def stop(self) -> None:
        self._stopped.set()

    def read(self) -> None:
        with self._lock:
            every = [*self.graphs, *self._further]
        for graph in every:
            if not self._stopped.is_set():
                self.read_one(graph)

    def read_one(self, graph: RemoteGraph) -> None:
        graph.read(format_instant(self._clock.now()))

    def _run_apart(self) -> None:
        with self._lock:
            running, self._running = self._running, True
        if not running:
            threading.Thread(target=self._run, name="remote graphs", daemon=True).start()

    def _run(self) -> None:
        self.read()
        while self._clock.wait(self._interval, self._stopped):
            self.read()


_Triple: TypeAlias = tuple[Term, Term, Term]
Pending: TypeAlias = Sequence[tuple["_Source", Mapping[Quad, bool]]]
"""What has changed, and where: the quads that are there now, and those that are not."""


class Changes(Protocol):
    """A source of changing quads."""

    def changes(self, now: int) -> Mapping[Quad, bool]:
        """Take the delta since the last call, up to an instant in microseconds."""


class _Source:
    def __init__(self, quads: Changes, default: Term | None = None) -> None:
        self.quads = quads
        self.default = default
        """A further name of their default graph."""
        self.parts: dict[Term, MemoryGraph] = {}
        self.sizes: dict[Term, int] = {}


class _LiveSource(_Source):
    def __init__(self, name: Term, store: LiveStore) -> None:
        facts = LiveFacts()
        super().__init__(facts, name)
        self.store = store
        self.stop = store.follow(facts)


class ChangingGraphs:
    """Apply deltas to static graphs.

    Facts of a default graph are in the default graph, and in that of their dataset.
    """

    def __init__(self, static: StaticData, remote: RemoteGraphs) -> None:
        self.static = static
        self.remote = remote
        self._live: list[_LiveSource] = []
        self._others = [_Source(each) for each in remote.graphs]
        self._now = 0

    def add(self, changes: Changes) -> None:
        self._others.append(_Source(changes))

    def drop(self, changes: Changes) -> None:
        for source in self._others:
            if source.quads is changes:
                for part in source.parts.values():
                    self.static.drop(part)
        self._others = [source for source in self._others if source.quads is not changes]

    def follow(self, stores: Mapping[Term, LiveStore]) -> None:
        kept = []
        for source in self._live:
            assert source.default is not None
            if stores.get(source.default) is source.store:
                kept.append(source)
                continue
            source.stop()
            for part in source.parts.values():
                self.static.drop(part)
        followed = {source.default for source in kept}
        kept += [_LiveSource(*each) for each in stores.items() if each[0] not in followed]
        self._live = kept

    def pending(self, now: datetime) -> Pending:
        """Take the deltas up to an instant, which never goes back.

        A failing store is read later.
        """
        self._now = max(self._now, to_micros(now))
        sources: list[_Source] = [*self._others]
        for source in self._live:
            try:
                # Also what other machines published.
                source.store.current(now)
                sources.append(source)
            except StoreError:
                pass  # another one takes its place just now, or it can be read again next time
        result = ((source, source.quads.changes(self._now)) for source in sources)
        return [(source, changes) for source, changes in result if changes]

    def apply(self, pending: Pending) -> None:
        for source, changes in pending:
            if source not in self._live and source not in self._others:
                continue
            graphs: dict[Term, tuple[list[_Triple], list[_Triple]]] = {}
            for quad, there in changes.items():
                added, removed = graphs.setdefault(quad.graph, ([], []))
                (added if there else removed).append(quad[:3])
            for graph, (added, removed) in graphs.items():
                self._change(source, graph, added, removed)

    def _change(
        self, source: _Source, graph: Term, added: list[_Triple], removed: list[_Triple]
    ) -> None:
        part = source.parts.get(graph)
        if part is None:
            names = [graph]
            if graph == DEFAULT_GRAPH and source.default is not None:
                names.append(source.default)
            part = source.parts[graph] = self.static.part(names)
        self.static.change(part, added, removed)
        size = source.sizes[graph] = source.sizes.get(graph, 0) + len(added) - len(removed)
        if not size:
            # Every fact may have a graph of its own.
            del source.parts[graph], source.sizes[graph]
            self.static.drop(part)


def asked_once(static: StaticData, clauses: Iterable[ServiceClause], clock: Clock) -> Iterator[str]:
    """Read services into static data; yield the reasons of failures."""
    with requests.Session() as session:
        changing = ChangingGraphs(static, RemoteGraphs({}, clock, timedelta(), session))
        for clause in dict.fromkeys(clauses):
            service = changing.remote.add(clause)
            changing.remote.read_one(service)
            changing.add(service)
            changing.apply(changing.pending(clock.now()))
            if service.reason is not None:
                yield service.reason


# How changes get into the static data of a service, one after the other.
#
# Whatever can be found out while others go on is found out outside the lock of the service.


class StaticUpdates:
    """Apply deltas for a service, and keep the graphs of SERVICE clauses that queries use.

    `lock` is held while queries are evaluated; `settle` is called under it after each update.
    """

    def __init__(
        self,
        changing: ChangingGraphs,
        clock: Clock,
        lock: AbstractContextManager[Any],
        settle: Callable[[], None],
    ) -> None:
        self._static = changing.static
        self._remote = changing.remote
        self._changing = changing
        self._clock = clock
        self._lock = lock
        self._settle = settle
        self._turn = threading.Condition()
        self._doing: Literal["", "update", "exchange"] = ""
        self._closed = False
        self._users: Counter[ServiceClause] = Counter()
        self._services: dict[ServiceClause, RemoteService] = {}

    def take(self, clauses: Iterable[ServiceClause], *, reads: bool = True) -> None:
        """Hold the graphs of clauses; with `reads`, read the new ones now."""
        for clause in clauses:
            with self._alone():
                self._users[clause] += 1
                new = clause not in self._services
                if new:
                    service = self._services[clause] = self._remote.add(clause)
                    self._changing.add(service)
            if new and reads:
                self._remote.read_one(self._services[clause])

    def release(self, clauses: Iterable[ServiceClause]) -> None:
        """Drop the graphs of clauses that no other query uses."""
        for clause in clauses:
            with self._alone(), self._lock:
                self._users[clause] -= 1
                if not self._users[clause]:
                    del self._users[clause]
                    graph = self._services.pop(clause)
                    self._remote.drop(graph)
                    self._changing.drop(graph)

    def explain(self, clauses: Iterable[ServiceClause]) -> dict[str, Any]:
        # Another thread may release some of them.
        graphs = [each for each in map(self._services.get, clauses) if each is not None]
        state: dict[str, Any] = {"services": [graph.state for graph in graphs]} if graphs else {}
        for graph in graphs:
            if graph.reason is not None:
                state |= {"state": "degraded", "reason": graph.reason}
        return state

    def exchange(
        self,
        graphs: Mapping[Term, Sequence[StoreGraph]],
        live: Mapping[Term, LiveStore],
    ) -> None:
        with self._alone("exchange"):
            # Graphs change only here, one after the other: what is prepared stays right.
            with self._lock:
                prepared = Preparation(self._static.copy(), self._static.with_stores(graphs))
                self._static.ask(graphs, prepared)
            prepared.run()
            with self._lock:
                if not self._closed:
                    self._static.exchange(graphs, prepared)
                    self._changing.follow(live)
                    self._settle()
        self.update()

    def update(self) -> None:
        """Apply the pending deltas, unless stores are being exchanged."""
        with ExitStack() as turn:
            with self._turn:
                self._turn.wait_for(lambda: self._doing != "update")
                if self._doing:
                    return
                turn.enter_context(self._alone())
            pending = self._changing.pending(self._clock.now())
            if pending:
                with self._lock:
                    if not self._closed:
                        self._changing.apply(pending)
                        self._settle()

    @contextmanager
    def _alone(self, what: Literal["update", "exchange"] = "update") -> Iterator[None]:
        with self._turn:
            self._turn.wait_for(lambda: not self._doing)
            self._doing = what
        try:
            yield
        finally:
            with self._turn:
                self._doing = ""
                self._turn.notify_all()

    def close(self) -> None:
        """Apply nothing more; called under the lock."""
        self._closed = True
