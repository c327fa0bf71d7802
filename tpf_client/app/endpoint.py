"""A SPARQL endpoint over fragments.

With ``Accept: text/event-stream`` the answer is kept up to date.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TypeAlias
from wsgiref.util import application_uri

import rdflib
from rdflib.namespace import DCTERMS, RDF

from annotations.follower_slots import FollowerSlots
from annotations.instants import FIRST, shifted
from annotations.seconds import check_seconds
from annotations.urls import is_called, origin_of
from tpf_client.client import Client
from tpf_client.errors import (
    ClientError,
    ClosedError,
    LimitError,
    QueryError,
    QuerySyntaxError,
    SourceError,
)
from tpf_client.live_answers import FollowedBody, LiveAnswers, StreamedBody, Wish, begun, work_of
from tpf_client.map_tiles import MapTiles
from tpf_client.page_files import Example, Headers, PageFiles, PageSettings
from tpf_client.planner.budget import Allowance, Budget, BudgetWatch
from tpf_client.protocol import (
    ALLOWED_METHODS,
    RefusedError,
    WsgiEnvironment,
    asks_nothing,
    is_set,
    negotiated,
    query_of,
    seconds_of,
)
from tpf_client.queries import LEAST_PERIOD, MOST_GRACE, QueryOptions
from tpf_client.solutions import graph_text
from tpf_client.sparql.algebra import DatasetClause
from tpf_client.sparql.parser import parse_query, with_dataset
from tpf_client.sparql.results import BOOLEAN_WRITERS, RESULT_MEDIA_TYPES, ResultError
from tpf_client.stream import Stream
from tpf_client.streaming.streamer import Budgets

# What the endpoint can, in RDF.
#
# Source: SPARQL 1.1 Service Description.

_DESCRIPTION = """
@prefix dcterms: <http://purl.org/dc/terms/> .
@prefix formats: <http://www.w3.org/ns/formats/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix sd: <http://www.w3.org/ns/sparql-service-description#> .

<> a sd:Service ; sd:endpoint <> ;
  sd:supportedLanguage sd:SPARQL11Query ; sd:feature sd:BasicFederatedQuery ;
  sd:resultFormat formats:SPARQL_Results_JSON, formats:SPARQL_Results_XML,
    formats:SPARQL_Results_CSV, formats:SPARQL_Results_TSV, formats:Turtle, formats:N-Triples,
    formats:RDF_XML, formats:JSON-LD,
    <https://www.iana.org/assignments/media-types/text/event-stream> ;
  sd:defaultDataset _:data .
_:data a sd:Dataset .

# Answers that are kept up to date. The draft whose names they take has a vocabulary of its own,
# which is not used here, because the protocol is not followed to the letter.
<https://www.iana.org/assignments/media-types/text/event-stream> a formats:Format ;
  formats:media_type "text/event-stream" ;
  rdfs:seeAlso <https://spec.knows.idlab.ugent.be/sparql-11-incremental-protocol/latest/> .
"""


_SD = rdflib.Namespace("http://www.w3.org/ns/sparql-service-description#")


def description(environ: WsgiEnvironment, path: str, urls: Sequence[str]) -> rdflib.Graph:
    """Describe the service over these datasets."""
    service = application_uri(dict(environ)).rstrip("/") + path
    graph = rdflib.Graph().parse(data=_DESCRIPTION, format="turtle", publicID=service)
    for data in graph.subjects(RDF.type, _SD.Dataset):
        for url in urls:
            graph.add((data, DCTERMS.source, rdflib.URIRef(url)))
    return graph


# What the editor of the page completes: the words of the datasets, looked up now and then.

KEPT = timedelta(minutes=10)
"""How long they are taken for the present ones."""


class VocabularyCache:
    """The words of a client's datasets as JSON. Thread-safe."""

    def __init__(self, client: Client, budgets: Budgets) -> None:
        self._client = client
        self._budgets = budgets
        self._lock = threading.Lock()
        self._until: datetime = FIRST
        self._body = b""

    def body(self) -> bytes:
        """Return ``predicates`` and ``classes``, most frequent first."""
        with self._lock:
            now = self._client.clock.now()
            if now >= self._until:
                vocabulary = self._counted() or self._sampled()
                self._body = json.dumps(vocabulary, ensure_ascii=False).encode()
                self._until = shifted(now, KEPT)
            return self._body

    def _counted(self) -> dict[str, list[tuple[str, int]]] | None:
        """Return the words with their counts; ``None``: a server does not tell them."""
        counts = {"predicates": Counter[str](), "classes": Counter[str]()}
        for url in self._client.urls:
            site, _, name = url.rpartition("/")
            try:
                address = f"{site}/query/words.json?dataset={name}"
                told = json.loads(self._client.fetcher.document(address))
                for kind, counter in counts.items():
                    counter.update({str(iri): int(count) for iri, count in told[kind]})
            except (
                SourceError, ValueError, TypeError, KeyError, OverflowError, RecursionError
            ):  # fmt: skip
                return None
        return {kind: counter.most_common() for kind, counter in counts.items()}

    def _sampled(self) -> dict[str, tuple[str, ...]]:
        with self._budgets() as budget:
            words = self._client.words(budget)
        return {"predicates": words.predicates, "classes": words.classes}


StartResponse: TypeAlias = Callable[[str, Headers], object]

PATH = "/sparql"
"""Where queries are answered."""
WORDS = "/words.json"
"""Where the predicates and classes of the datasets are told."""
ESTIMATE = "/estimate"
"""Where it is told how much a query would read; with ``syntax=true`` it is parsed only."""

GRAPH_TYPES = {
    "text/turtle": "turtle",
    "application/n-triples": "nt",
    "application/rdf+xml": "xml",
    "application/ld+json": "json-ld",
}
_EVENTS = "text/event-stream"
"""The media type of an answer that is kept up to date."""
_SOLUTION_TYPES = {media: name for name, media in RESULT_MEDIA_TYPES.items()}
_SOLUTION_ALIASES = {"application/json": "json", "application/xml": "xml", "text/xml": "xml"}
_RECHECK = 60.0
"""Seconds between looks at data of which nothing is labelled."""
_SPARE = 4
"""Threads for requests that no query belongs to, or that wait for their turn."""


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """The limits of an endpoint.

    Args:
        queries: the most concurrent queries; others wait.
        streams: the most readers of followed answers.
        streams_per_reader: the most of these per address; 0: all.
        min_interval: the least seconds between two evaluations of a followed answer.

    Raises:
        ValueError: an invalid interval.
    """

    queries: int = 8
    streams: int = 200
    streams_per_reader: int = 0
    min_interval: float = 1.0

    def __post_init__(self) -> None:
        check_seconds(min_interval=self.min_interval)


_LIMITS = EndpointLimits()


class SparqlEndpoint:
    """A WSGI application that answers SPARQL queries by a client; thread-safe.

    Args:
        hosts: names of this server in requests, beside ``localhost`` and IP addresses, against DNS
            rebinding; ``*``: any.
        origins: origins (``https://example.org``) whose web pages may ask; ``*``: any.
        limits: of all queries together.
        examples: queries that the page at ``/`` offers.
        tiles: the background of the page's map.
    """

    def __init__(
        self,
        client: Client,
        allowance: Allowance | None = None,
        *,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        limits: EndpointLimits = _LIMITS,
        examples: Sequence[Example] = (),
        tiles: MapTiles | None = None,
    ) -> None:
        self._client = client
        self._allowance = allowance or Allowance()
        self._turns = threading.Semaphore(limits.queries)
        self._slots = FollowerSlots(limits.streams, limits.streams_per_reader)
        self._min_interval = limits.min_interval
        self._page = PageFiles(PageSettings(client.urls, examples, endpoint=True, tiles=tiles))
        self._words = VocabularyCache(client, self._budget)
        self._live = LiveAnswers(
            self._stream, client.clock, self._allowance.rows, self._work, limits.streams
        )
        self.threads = limits.queries + limits.streams + _SPARE
        """How many requests may be under way at the same time."""
        self._hosts = frozenset(map(str.lower, hosts))
        self._origins = frozenset(each.lower() for each in origins)
        self._watch = BudgetWatch()

    @property
    def under_way(self) -> int:
        return len(self._watch)

    @property
    def followed(self) -> int:
        """The number of distinct queries kept up to date."""
        return len(self._live)

    def close(self) -> None:
        self._live.close()
        self._watch.close()

    def __call__(self, environ: WsgiEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        headers: Headers = [
            ("Vary", "Accept, Accept-Encoding, Origin"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        path = environ.get("PATH_INFO", PATH)
        allowed = ALLOWED_METHODS if path in (PATH, ESTIMATE) else "GET, HEAD, OPTIONS"
        try:
            headers += self._welcome(environ)
            if environ["REQUEST_METHOD"] == "OPTIONS":
                start_response("204 No Content", [*headers, ("Allow", allowed)])
                return []
            if path not in (PATH, WORDS, ESTIMATE):
                status, more, content = self._page.answer(environ, path)
                start_response(f"{status.value} {status.phrase}", [*headers, *more])
                return [] if environ["REQUEST_METHOD"] == "HEAD" else [content]
            status = HTTPStatus.OK
            media_type, body = self._answer(environ, path)
        except (RefusedError, ClientError) as error:
            status, text = _failure(error)
            media_type, body = "text/plain; charset=utf-8", text.encode()
            if status is HTTPStatus.SERVICE_UNAVAILABLE:
                headers.append(("Retry-After", "10"))
            if status is HTTPStatus.METHOD_NOT_ALLOWED:
                headers.append(("Allow", allowed))
        headers.append(("Content-Type", media_type))
        if media_type == _EVENTS:
            headers += [("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")]
        if isinstance(body, bytes):
            headers.append(("Content-Length", str(len(body))))
        start_response(f"{status.value} {status.phrase}", headers)
        if environ["REQUEST_METHOD"] == "HEAD":
            if not isinstance(body, bytes):
                body.close()
            return []
        return [body] if isinstance(body, bytes) else body

    def _welcome(self, environ: WsgiEnvironment) -> Headers:
        """Return headers for an allowed request; otherwise raise a `RefusedError`."""
        host = environ.get("HTTP_HOST", "localhost")
        if not is_called(host, self._hosts):
            raise RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, f"this is not {_shown(host)}; see --allow-host"
            )
        headers: Headers = []
        origin = environ.get("HTTP_ORIGIN")
        site = environ.get("HTTP_SEC_FETCH_SITE", "none")
        if environ.get("HTTP_SEC_FETCH_MODE") == "no-cors" and site not in ("none", "same-origin"):
            # An image of a page that cannot read the answer; the query would cost as much.
            origin = "another origin"
        own = None if origin is None else origin_of(origin)
        if origin is not None and (own is None or own[1].lower() != host.lower()):
            if not self._origins & {"*", origin.lower()}:
                raise RefusedError(
                    HTTPStatus.FORBIDDEN,
                    f"pages of {_shown(origin)} may not ask here; see --allow-origin",
                )
            headers.append(("Access-Control-Allow-Origin", "*" if "*" in self._origins else origin))
            if "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ:
                headers += [
                    ("Access-Control-Allow-Methods", ALLOWED_METHODS),
                    ("Access-Control-Allow-Headers", "Accept, Content-Type, Last-Event-ID"),
                    ("Access-Control-Max-Age", "86400"),
                ]
        path = environ.get("PATH_INFO", PATH)
        if path not in (PATH, WORDS, ESTIMATE) and path not in self._page:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"queries are answered at {PATH}")
        return headers

    def _answer(
        self, environ: WsgiEnvironment, path: str
    ) -> tuple[str, bytes | StreamedBody | FollowedBody]:
        if path == WORDS:
            if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
                raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} can only be read")
            return "application/json", self._words.body()
        if path == ESTIMATE:
            text = query_of(environ).text
            if is_set(environ, "syntax"):
                parse_query(text)
                return "application/json", b"{}"
            with self._budget() as budget:
                estimate = self._client.estimate(text, budget)
            return "application/json", json.dumps(asdict(estimate)).encode()
        accept = environ.get("HTTP_ACCEPT", "*/*")
        if asks_nothing(environ):
            media_type = negotiated(accept, GRAPH_TYPES, {})
            graph = description(environ, PATH, self._client.urls)
            return media_type, graph_text(graph, GRAPH_TYPES[media_type]).encode()
        text, at, *graphs = query_of(environ)
        if any(graphs):
            text = with_dataset(text, DatasetClause(*graphs))
        if _wants_events(accept):
            if at is not None:
                raise RefusedError(HTTPStatus.BAD_REQUEST, "at: a followed answer begins now")
            return _EVENTS, self._follow(text, environ)
        reader_gone = environ.get("waitress.client_disconnected", lambda: False)
        while not self._turns.acquire(timeout=1):
            if reader_gone():
                raise ClosedError("the reader has gone")
        with ExitStack() as failing:
            failing.callback(self._turns.release)
            budget = Budget(self._client.clock, self._allowance, reader_gone)
            failing.enter_context(self._watch.watching(budget))
            answer = self._client.query(text, at=at, options=QueryOptions(budget=budget))
            if isinstance(answer, rdflib.Graph):
                media_type = negotiated(accept, GRAPH_TYPES, {})
                return media_type, graph_text(answer, GRAPH_TYPES[media_type]).encode()
            if isinstance(answer, bool):
                types = {RESULT_MEDIA_TYPES[name]: name for name in BOOLEAN_WRITERS}
                media_type = negotiated(accept, types, _SOLUTION_ALIASES)
                return media_type, BOOLEAN_WRITERS[types[media_type]](answer).encode()
            failing.callback(answer.close)
            media_type = negotiated(accept, _SOLUTION_TYPES, _SOLUTION_ALIASES)
            pieces = begun(answer, _SOLUTION_TYPES[media_type])
            if "tpf_client.cut_off" in environ:
                # Whoever waits for a reader cannot be told that the time is over.
                budget.on_stop(environ["tpf_client.cut_off"])
            return media_type, StreamedBody(pieces, failing.pop_all().close)

    def _work(self) -> dict[str, int]:
        return work_of(self._client.statistics)

    def _stream(self, wish: Wish) -> Stream:
        return self._client.stream(
            wish.text,
            min_interval=self._min_interval,
            max_interval=wish.max_interval,
            grace=wish.grace,
            keep_checking=_RECHECK,
            quiet=True,
            explain=True,
            budgets=self._budget,
        )

    def _budget(self) -> AbstractContextManager[Budget]:
        return self._watch.watching(Budget(self._client.clock, self._allowance))

    def _follow(self, text: str, environ: WsgiEnvironment) -> FollowedBody:
        interval = seconds_of(environ, "max-interval", LEAST_PERIOD, 9_999_999)
        if interval is not None:
            interval = max(interval, self._min_interval)
        wish = Wish(text, interval, seconds_of(environ, "grace", 0, MOST_GRACE) or 0.0)
        address = environ.get("REMOTE_ADDR", "")
        if not self._slots.take(address):
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self._slots.limit} readers follow answers already, or "
                f"{self._slots.per_address} of this address; try again later",
            )
        with ExitStack() as ending:
            ending.callback(self._slots.leave, address)
            last = environ.get("HTTP_LAST_EVENT_ID")
            follower = self._live.follow(wish, last, explain=is_set(environ, "explain"))
            ending.callback(self._live.leave, follower)
            environ.get("tpf_client.when_gone", lambda _: None)(follower.end)
            follower.begin()
            return FollowedBody(follower, ending.pop_all().close)


def _wants_events(accept: str) -> bool:
    try:
        types = {**_SOLUTION_TYPES, **GRAPH_TYPES, _EVENTS: "events"}
        return negotiated(accept, types, _SOLUTION_ALIASES) == _EVENTS
    except RefusedError:
        return False


def _failure(error: RefusedError | ClientError) -> tuple[HTTPStatus, str]:
    match error:
        case RefusedError():
            return error.status, str(error)
        case QuerySyntaxError():
            return HTTPStatus.BAD_REQUEST, f"{error}\n{error.pointed}"
        case QueryError() | ResultError():
            return HTTPStatus.BAD_REQUEST, str(error)
        case ClosedError() | LimitError():
            return HTTPStatus.SERVICE_UNAVAILABLE, str(error)
        case _:
            # A fragment server failed, not we.
            return HTTPStatus.BAD_GATEWAY, str(error)


def _shown(text: str) -> str:
    return ascii(text[:100])[1:-1]
