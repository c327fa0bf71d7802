"""Tables of settings for the server and for a dataset, which `tpf_server.configuration` fills.

The fields of `Settings` and `DatasetSettings` *are* the tables: name, type, default and help.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from annotations.methods import METHODS
from annotations.namespaces import SINGLETON, TEMPORAL
from annotations.seconds import MOST_SECONDS, is_seconds
from annotations.urls import origin_of
from annotations.wording import check_token
from tpf_client.errors import MapTilesError
from tpf_client.map_tiles import map_tiles
from tpf_server.errors import SettingsError

# Tables of settings: how a row is written, and which values fit it.

_MOST = 10**15
_WEB_IRI = re.compile(r"https?://[^\x00-\x20<>\"{}|\\^`]+")
_PREFIX = re.compile(r"(?:[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?)?")
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|\\^`]*")


def setting(default: Any, help_text: str) -> Any:
    """Return a row: a field of a dataclass that is a table."""
    return dataclasses.field(default=default, metadata={"help": help_text})


class SettingRow(NamedTuple):
    """A row of a table of settings."""

    name: str
    type: Any
    default: Any
    help: str


def table(kind: type[Any]) -> Iterator[SettingRow]:
    """Return the rows of a table of settings."""
    types = get_type_hints(kind)
    for row in dataclasses.fields(kind):
        default = row.default if row.default is not dataclasses.MISSING else None
        yield SettingRow(row.name, types[row.name], default, row.metadata["help"])


def _check_token(name: str, token: str) -> None:
    try:
        check_token(token)
    except ValueError as error:
        raise SettingsError(f"{name} could never match: {error}") from None


def _check_prefixes(where: str, prefixes: Mapping[str, str]) -> None:
    for name, namespace in prefixes.items():
        # They are written into pages as they are.
        if not _PREFIX.fullmatch(name):
            raise SettingsError(f"{where}no name of a prefix: {name!r}")
        if not _IRI.fullmatch(namespace):
            raise SettingsError(f"{where}prefix {name} stands for no IRI: {namespace!r}")


def _check_types(where: str, settings: Any) -> None:
    for row in table(type(settings)):
        value = getattr(settings, row.name)
        if not _fits(value, row.type):
            raise SettingsError(f"{where}{row.name} is {_name(row.type)}, not {value!r}")


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(value, option) for option in get_args(kind))
    if kind is float:
        # All of them are times.
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and is_seconds(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST
    origin = get_origin(kind) or kind
    if not isinstance(value, origin):
        return False
    items = value.values() if isinstance(value, dict) else value if origin is tuple else ()
    return all(isinstance(item, str) for item in items)


def _name(kind: Any) -> str:
    if isinstance(kind, UnionType):
        return " or ".join(_name(option) for option in get_args(kind) if option is not type(None))
    seconds = f"a number of seconds, at most {MOST_SECONDS:.12g}"
    number = f"a whole number, at most {_MOST}"
    names = {bool: "true or false", int: number, float: seconds, str: "a text"}
    return names.get(kind, "a list of texts" if get_origin(kind) is tuple else "a table of texts")


def is_web_iri(text: str) -> bool:
    """True for an ``http`` or ``https`` IRI."""
    return _WEB_IRI.fullmatch(text) is not None


PLAIN = "plain"
VIEW_NAMES = (PLAIN, *(method.name for method in METHODS))
_RESERVED_NAMES = frozenset(
    {
        *("api-doc", "healthz", "readyz", "metrics", "robots.txt"),
        *("streams", "queries", "query", "sparql"),
    }
)
_HTTP_URL = re.compile(r"https?://[^\s/?#]+([/?][^\s#]*)?")
_DATASET_NAME = re.compile(r"[A-Za-z0-9_~][A-Za-z0-9_.~-]*")


_LEAST = {
    **dict.fromkeys(
        ("workers", "page_size", "max_page_size", "max_body", "body_timeout", "idle_timeout",
         "followers", "max_queries", "max_window", "max_join_rows", "max_results",
         "max_result_rows", "max_result_bytes"), 1,
    ),
    **dict.fromkeys(
        ("max_values", "followers_per_address", "change_followers",
         "stream_delay", "stream_lateness", "stream_patience", "stream_ahead"), 0,
    ),
}  # fmt: skip
"""The least values of the server's numbers."""
_CHOICES = {
    "csparql_engine": ("native", "spark"),
    "join_routing": ("reviewed", "fixed", "per-tuple"),
    "stream_kernel": ("compiled", "off"),
    "widen_steps": ("never", "unstated", "all"),
    "rspql_tick": ("time", "batch", "tuple"),
    "stream_time": ("clock", "elements"),
}


def _is_http_url(text: str) -> bool:
    return _HTTP_URL.fullmatch(text) is not None and origin_of(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSettings:
    """Settings of one dataset (``[datasets.NAME]`` in the file)."""

    name: str = field(metadata={"help": "name in the URL; in the file it is the table's name"})
    title: str = setting("", "title for people; the name where empty")
    description: str = setting("", "what the dataset is about, for people")
    license: str = setting("", "IRI of the licence under which the dataset may be used")
    publisher: str = setting("", "who publishes the dataset: an IRI, or a name")
    vocabulary: str = setting(
        "", "namespace of time labels, with # or / at its end; unset: " + TEMPORAL
    )
    singleton_vocabulary: str = setting(
        "", "namespace of singletonPropertyOf, with # or / at its end; unset: " + SINGLETON
    )
    prefixes: dict[str, str] = field(
        default_factory=dict,
        metadata={"help": "prefixes of the dataset, before the server's: name = IRI"},
    )
    source: str = setting("", "a store (directory or URL), or RDF to index at start")
    live: bool | str | None = setting(
        None,
        "live facts: true, false, or their log: a path or postgresql://…; unset: true with a token",
    )
    annotation: str = setting(PLAIN, "how /{dataset} shows live facts: " + ", ".join(VIEW_NAMES))
    views: tuple[str, ...] = setting(VIEW_NAMES, "the views that are served at /{dataset}/{view}")
    key: str = setting(
        "subject-predicate", "what versions of a fact share: subject-predicate or triple"
    )
    token: str = setting("", "bearer token for publishing; the server's publish_token where empty")
    token_file: str = setting("", "file that holds the token, in its place")
    page_size: int = setting(0, "quads per page; the server's page_size where 0")
    max_age: float | None = setting(
        None, "seconds that a page may be cached for; unset: 10 with live facts, else 3600"
    )
    retention: float = setting(
        300.0, "seconds for which replaced facts and the pages of a snapshot are kept"
    )
    history: float | None = setting(
        None, "seconds for which intervals are kept after they ended; unset: for ever"
    )
    accept_past: bool = setting(
        False, "whether intervals that have ended may be published, to load history"
    )
    event_stream: float | None = setting(
        None,
        "seconds for which all that is published and withdrawn is kept as a Linked Data Event "
        "Stream at /{dataset}/ldes; unset: there is none",
    )
    page_labels: bool = setting(True, "state the labels of a page's facts in its metadata")

    def __post_init__(self) -> None:
        where = f"dataset {self.name}: "
        _check_types(where, self)
        if not _DATASET_NAME.fullmatch(self.name) or self.name in _RESERVED_NAMES:
            raise SettingsError(
                f"not the name of a dataset: {self.name!r}; it has letters, digits and _ ~ . -, "
                f"and is none of {', '.join(sorted(_RESERVED_NAMES))}"
            )
        for view in (self.annotation, *self.views):
            if view not in VIEW_NAMES:
                raise SettingsError(
                    f"{where}no annotation method {view!r}; there are {', '.join(VIEW_NAMES)}"
                )
        if self.key not in ("subject-predicate", "triple"):
            raise SettingsError(f"{where}key is subject-predicate or triple, not {self.key!r}")
        if self.license and not is_web_iri(self.license):
            raise SettingsError(f"{where}license is not an IRI: {self.license!r}")
        for name in ("vocabulary", "singleton_vocabulary"):
            namespace = getattr(self, name)
            if namespace and not (is_web_iri(namespace) and namespace[-1] in "#/"):
                raise SettingsError(
                    f"{where}{name} is no IRI with # or / at its end: {namespace!r}"
                )
        _check_prefixes(where, self.prefixes)
        _check_token(f"{where}token", self.token)
        for name in ("page_size", "retention", "max_age", "history", "event_stream"):
            if (getattr(self, name) or 0) < 0:
                raise SettingsError(f"{where}{name} cannot be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the server; a bad value raises `SettingsError`."""

    host: str = setting("127.0.0.1", "address to listen on, or its name")
    port: int = setting(3000, "port to listen on; 0: a free one, which is printed")
    workers: int = setting(1, "worker processes")
    base_url: str = setting(
        "", "URL under which clients see the server; unset: http://HOST:PORT/ of the above"
    )
    trust_forwarded: bool = setting(
        False,
        "believe X-Forwarded-Proto and -Host (for the URLs in pages) and -For (for limits by "
        "address) of a proxy",
    )
    title: str = setting("Live Linked Data", "title of the HTML pages")
    description: str = setting("", "what the datasets are about, for the catalogue at /")
    publisher: str = setting("", "who publishes the catalogue: an IRI, or a name")
    query_examples: str = setting(
        "", "folder of queries, *.rq, that the page at /query/ offers by their first comments"
    )
    query_map_tiles: str = setting(
        "",
        "URL with {z}, {x} and {y} of tiles that browsers get for the map of the page at /query/ "
        "from there; unset: none, and nobody else is asked",
    )
    query_map_attribution: str = setting("", "whose these tiles are, to be named below the map")
    query_page: str = setting(
        "",
        "URL of a page of `tpf-query serve` over the datasets, which pages link to; "
        "unset: /query/, where the browser evaluates them",
    )
    data_dir: str = setting(".tpf-server", "where indexes and the logs of live facts are kept")
    source_interval: float = setting(60.0, "seconds between looks at stores at URLs; 0: none")
    publish_token: str = setting("", "bearer token for publishing; off where empty")
    publish_token_file: str = setting("", "file that holds publish_token, in its place")
    page_size: int = setting(100, "quads per page")
    max_page_size: int = setting(1000, "most quads that a client may ask for with limit")
    max_values: int = setting(64, "most bindings in a values parameter (brTPF); 0: off")
    max_body: int = setting(16 * 2**20, "bytes of a published body")
    body_timeout: float = setting(120.0, "seconds in which a body must have arrived")
    idle_timeout: float = setting(
        30.0, "seconds after which a connection is closed that sends no whole head of a request"
    )
    open_metrics: bool = setting(True, "show /metrics to everybody; else with publish_token only")
    open_queries: bool = setting(
        True, "show streams, queries and results to everybody; else with publish_token only"
    )
    continuous: bool = setting(
        False, "continuous queries over streams, at /streams and /queries; needs workers = 1"
    )
    followers: int = setting(
        256,
        "most connections that follow results of continuous queries; each holds a thread",
    )
    followers_per_address: int = setting(
        32, "most connections of one address that follow results, or changes; 0: any number"
    )
    change_followers: int = setting(
        0,
        "most connections that follow the changes of datasets (/{dataset}/changes), of each "
        "worker; each holds a thread; 0: none",
    )
    stream_time: str = setting(
        "clock", "what moves the time of streams: the clock (and elements), or elements only"
    )
    stream_delay: int = setting(
        500, "milliseconds by which the time of streams stays behind the clock"
    )
    stream_lateness: int = setting(
        0, "milliseconds that elements of streams wait, to be put in order"
    )
    stream_patience: int = setting(
        0,
        "milliseconds that a C-SPARQL query waits for a stream that is behind; not by the clock",
    )
    stream_ahead: int = setting(
        60_000, "milliseconds that an element may be ahead of the clock; beyond it is refused"
    )
    skip_malformed: bool = setting(
        False, "leave malformed elements of streams out, instead of refusing their batch"
    )
    create_streams: bool = setting(True, "whether a push or a query makes a stream that is new")
    keep_queries: bool = setting(
        False, "keep continuous queries and streams in data_dir, and begin them again at start"
    )
    keep_windows: bool = setting(
        False,
        "with keep_queries: keep elements in windows and results in data_dir, durably, so that a "
        "server that was killed continues",
    )
    max_queries: int = setting(10_000, "most continuous queries")
    max_window: int = setting(10_000_000, "most elements in the windows of one continuous query")
    max_join_rows: int = setting(
        1_000_000,
        "most rows that the joins of one continuous query make at once, or hold in its windows "
        "(C-SPARQL and RSP-QL), and a 64th of the characters that its expressions read",
    )
    max_results: int = setting(10_000, "most emissions of one continuous query that are kept")
    max_result_rows: int = setting(100_000, "most rows that these have together")
    max_result_bytes: int = setting(
        2**28, "about the bytes that kept emissions of all continuous queries take"
    )
    direct_pages: bool = setting(
        True, "answer pages before Flask dispatches them; off: hooks of Flask see them, too"
    )
    csparql_engine: str = setting(
        "native", "what executes C-SPARQL where a registration does not say: native or spark"
    )
    rspql_report: str = setting(
        "window close",
        "report policy of RSP-QL queries that state none: window close, content change, "
        "non-empty content, periodic with a duration; several with commas",
    )
    rspql_tick: str = setting(
        "time", "tick of RSP-QL queries that state none: time, batch or tuple"
    )
    join_routing: str = setting(
        "reviewed",
        "when the order of joins in CQELS-QL is chosen: reviewed (while the server runs), fixed "
        "(at registration) or per-tuple (for each row)",
    )
    stream_kernel: str = setting(
        "compiled",
        "kernel for batches of records in CQELS-QL queries that order and limit groups: compiled "
        "(off if the package was built without a compiler) or off",
    )
    spark_master: str = setting("local[*]", "master URL of Spark, for queries that run there")
    spark_work: str = setting(
        "",
        "URL of a folder for elements, windows and results there, where Spark's machines see no "
        "directory of this one; emptied when Spark starts, one for each server",
    )
    widen_steps: str = setting(
        "unstated",
        "C-SPARQL queries whose steps grow under load: unstated (those without COMPUTED EVERY), "
        "all or never",
    )
    remote_interval: float = setting(60.0, "seconds after which graphs of [remote] are read again")
    allow_service: tuple[str, ...] = setting(
        (), "servers (scheme, host, port) that SERVICE in continuous queries may ask"
    )
    compress: bool = setting(True, "br, zstd, gzip and deltas for clients that accept them")
    access_log: bool = setting(False, "write a line for every request to standard error")
    prefixes: dict[str, str] = field(
        default_factory=dict,
        metadata={"help": "prefixes for terms in URLs and pages: name = IRI"},
    )
    declare: dict[str, str] = field(
        default_factory=dict,
        metadata={"help": "the only predicates of a stream: stream = IRIs, separated by blanks"},
    )
    allow_streams: dict[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "servers (scheme, host, port) whose streams continuous queries may read and "
            "make: URL = the token that they want, or empty"
        },
    )
    remote: dict[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "graphs of continuous queries that are kept elsewhere: "
            "IRI = URL of a fragment or an RDF document"
        },
    )

    def __post_init__(self) -> None:
        _check_types("", self)
        for name in ("base_url", "query_page"):
            url = getattr(self, name)
            # IRIs of pages begin with it.
            if url and not (
                is_web_iri(url) and re.fullmatch(r"[^\s?#]+//[^\s/?#]+(/[^\s?#]*)?", url)
            ):
                raise SettingsError(f"{name} is not an http(s) URL: {url!r}")
        try:
            map_tiles(self.query_map_tiles, self.query_map_attribution)
        except MapTilesError as error:
            raise SettingsError(f"query_map_tiles, query_map_attribution: {error}") from error
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"port is not between 0 and 65535: {self.port}")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise SettingsError(f"{name} must be at least {least}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                *others, last = choices
                listed = f"{', '.join(others)} or {last}"
                raise SettingsError(f"{name} is {listed}, not {getattr(self, name)!r}")
        if self.remote_interval <= 0:
            raise SettingsError("remote_interval must be above 0")
        for name in ("allow_service", "allow_streams"):
            for url in getattr(self, name):
                if not _is_http_url(url):
                    raise SettingsError(f"{name} is not an http(s) URL: {url!r}")
        for url, token in self.allow_streams.items():
            _check_token(f"allow_streams: the token of {url}", token)
        for graph, url in self.remote.items():
            if not _is_http_url(url):
                raise SettingsError(f"remote: {graph} is not at an http(s) URL: {url!r}")
        _check_prefixes("", self.prefixes)
        _check_token("publish_token", self.publish_token)
        if self.continuous and self.workers > 1:
            raise SettingsError("continuous needs workers = 1: its streams live in one process")
        if self.keep_windows and not self.keep_queries:
            raise SettingsError("keep_windows needs keep_queries, or nothing would be kept")

    @property
    def watched_at(self) -> str:
        """Where queries are watched: a URL, or relative to the base and to each dataset."""
        return self.query_page or "query/"

    @property
    def base(self) -> str:
        """The base URL, with a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        url = self.base_url or f"http://{host}:{self.port}/"
        return url if url.endswith("/") else url + "/"
