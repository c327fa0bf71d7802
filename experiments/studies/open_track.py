"""``open-track``: BSBM and WatDiv, other people's benchmarks, over fragments.

Sources: C. Bizer, A. Schultz: The Berlin SPARQL Benchmark, 2009; G. Aluç, O. Hartig, M. T. Özsu,
K. Daudjee: Diversified Stress Testing of RDF Data Management Systems, ISWC 2014.
"""

import lzma
import math
import multiprocessing
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final, Self, TypeAlias

import psutil
import pyoxigraph

from annotations.clock import SystemClock
from experiments.errors import ProcessFailedError, UnavailableError
from experiments.free_port import free_port
from experiments.harness import items, peers, servers
from experiments.harness.processes import LOOPBACK, Process, child, started
from experiments.harness.report import rounded
from experiments.harness.results import Results
from experiments.harness.static_loading import StaticLoading

COMUNICA = "Comunica"
COMUNICA_BRTPF = "Comunica, source type brtpf"
OURS_PLAIN = "ours, plain TPF"
RESTRICTED = "ours, brTPF and large pages"
SolutionBag: TypeAlias = Counter[tuple[str | None, ...]]
_DATA: Final = "TPF_OPEN_TRACK"
LARGE: Final = ("WatDiv 11 M", "WatDiv 110 M")
_FILES: Final = {
    "BSBM": ("bsbm", "bsbm-1000"), "WatDiv": ("watdiv", "watdiv-10"),
    LARGE[0]: ("watdiv", "watdiv-100"), LARGE[1]: ("watdiv", "watdiv-1000"),
}  # fmt: skip
"""Folder and data of each benchmark."""
_UNASKED: Final = ("06",)
"""A regular expression over all labels, which nobody measures over fragments."""
_HEAVY: Final = ("C3",)
"""Tens of thousands of solutions: asked by one client, without latency, of the smaller data."""
OXIGRAPH: Final = "oxigraph"
IN_PROCESS: Final = "in process"
PAIRS: Final = (
    (servers.OURS, OURS_PLAIN), (servers.OURS, RESTRICTED), (servers.OURS, servers.REFERENCE),
    (COMUNICA, OURS_PLAIN), (COMUNICA_BRTPF, RESTRICTED), (COMUNICA, servers.REFERENCE),
    (OXIGRAPH, IN_PROCESS),
)  # fmt: skip
"""Clients and servers. Oxigraph reads the data without a network: what an endpoint can do."""
_HELD: Final = 2.5
"""Bytes of memory that oxigraph takes for one of N-Triples."""
_COMUNICAS: Final = {OURS_PLAIN: COMUNICA, RESTRICTED: COMUNICA_BRTPF, servers.REFERENCE: COMUNICA}
_SHARES: Final = {
    ("BSBM", OURS_PLAIN, 0): 1 / 3, ("WatDiv", OURS_PLAIN, 0): 1 / 4,
    ("BSBM", RESTRICTED, 0): 1 / 6, ("WatDiv", RESTRICTED, 0): 1 / 6,
    ("BSBM", OURS_PLAIN, 50): 1 / 4, ("WatDiv", OURS_PLAIN, 50): 1 / 4,
    ("BSBM", RESTRICTED, 50): 1 / 10, ("WatDiv", RESTRICTED, 50): 1 / 10,
}  # fmt: skip
"""Targets: seconds of our client by those of Comunica over plain fragments."""
_OVER: Final = {
    OURS_PLAIN: "over plain fragments", RESTRICTED: "over our default server",
    servers.REFERENCE: "over @ldf/server",
}  # fmt: skip
_COLUMNS: Final = {
    "seconds": "seconds", "requests": "requests", "bytes": "bytes",
    "client_cpu_ms": "CPU of client, ms", "server_cpu_ms": "CPU of server, ms",
    "timeouts": "timeouts", "failed": "failed",
}  # fmt: skip
_ALL: Final = "all"
"""Stands where a query would: many clients at once, each with the next one of the mix."""
_READY_SECONDS: Final = 60.0
_WARM_SECONDS: Final = 6.0
_ATTEMPTS: Final = 3
_LONGEST: Final = 300
_FORKED: Final = multiprocessing.get_context("fork")
_LIMIT: Final = re.compile(r"\b(LIMIT|OFFSET)\s+(\d+)", re.IGNORECASE)
_GRAPH: Final = re.compile(r"\b(CONSTRUCT|DESCRIBE)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes: instances of each query, latencies in milliseconds, clients that ask at once.

    With latency each query has `far_instances`, and the reference server is left out: it makes
    others wait as ours does. Large data are asked once, without
    latency, by one client, for `large_seconds` at most, and of our server only.
    """

    benchmarks: tuple[str, ...] = tuple(_FILES)
    instances: int = 3
    far_instances: int = 1
    latencies: tuple[int, ...] = (0, 50)
    crowds: tuple[int, ...] = (1, 8, 64)
    seconds: float = 60.0
    large_seconds: float = 20.0
    clients: tuple[str, ...] = tuple(dict.fromkeys(client for client, _ in PAIRS))
    data: str = ""

    @classmethod
    def quick(cls) -> Self:
        """Use one instance of each query of BSBM, without latency and crowds."""
        return cls(("BSBM",), instances=1, latencies=(0,), crowds=(1,))

    def of_large(self) -> Self:
        return replace(
            self, instances=1, latencies=(0,), crowds=(1,), seconds=self.large_seconds
        )  # fmt: skip

    def folders(self) -> list[Path]:
        if self.data:
            return [Path(self.data)]
        default = Path(__file__).parents[3] / "shared/data"
        return [*map(Path, filter(None, [os.environ.get(_DATA)])), default]


@dataclass(frozen=True, slots=True)
class ProxiedServer:
    """A server, the proxy before it, and the URL of its dataset behind both."""

    server: servers.Server
    proxy: Process
    url: str

    def passed(self, delay: float) -> Mapping[str, int]:
        """Return the proxy's counts since the last call; set the delay in milliseconds."""
        return self.proxy.ask({"delay": delay}, _READY_SECONDS)


@contextmanager
def proxied_server(
    name: str, data: Path, folder: Path, static: StaticLoading
) -> Iterator[ProxiedServer]:
    """Serve a file of RDF behind a proxy, whose URL is its base URL; the dataset has its name."""
    dataset = data.name.partition(".")[0]
    port = free_port()
    base = f"http://{LOOPBACK}:{port}/"
    with ExitStack() as stack:
        if name == servers.REFERENCE:
            served = servers.reference_data(data, folder)
            server = stack.enter_context(
                servers.reference_server(served, dataset, folder / "reference", base_url=base)
            )
        else:
            store = folder / dataset
            if not store.exists():
                static.load({store: data}, SystemClock().now())
            config = "max_values = 0\nmax_page_size = 100\n" if name == OURS_PLAIN else ""
            server = stack.enter_context(
                servers.fragment_server(folder, config, store, base_url=base)
            )
        order = child("experiments.harness.delay_proxy:DelayProxy", str(server.port), str(port))
        proxy = stack.enter_context(started("delay proxy", order))
        proxy.ask({"delay": 0.0}, _READY_SECONDS)
        yield ProxiedServer(server, proxy, base + dataset)


@contextmanager
def query_client(name: str) -> Iterator[Process]:
    """Start the process of a client; see `experiments.studies.processes.answer_questions`."""
    if name in (COMUNICA, COMUNICA_BRTPF):
        script = Path(__file__).with_name("native") / "comunica.mjs"
        peers.package("@comunica/query-sparql")
        order = [peers.new_node(), str(script), str(peers.node_modules())]
    else:
        order = child("experiments.studies.processes:answer_questions")
    with started(name, order) as process:
        yield process


def solution_bag(result: Any) -> SolutionBag:
    """Return an answer of pyoxigraph as clients give it."""
    if isinstance(result, pyoxigraph.QuerySolutions):
        names = sorted(result.variables, key=str)
        return Counter(
            tuple(None if (term := row[name]) is None else str(term) for name in names)
            for row in result
        )
    if isinstance(result, pyoxigraph.QueryTriples):
        return Counter({(str(s), str(p), str(o)) for s, p, o in result})
    return Counter([(str(bool(result)).lower(),)])


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Data as N-Triples, perhaps xz-compressed, the instances of each query, and who asks them."""

    name: str
    data: Path
    queries: Mapping[str, Sequence[str]]
    pairs: Sequence[tuple[str, str]] = PAIRS

    def mix(self) -> list[tuple[str, int]]:
        """Return query and instance: the first instances of all, then the second ones."""
        most = max(map(len, self.queries.values()))
        numbered = ((name, k) for k in range(most) for name in self.queries)
        return [(name, k) for name, k in numbered if k < len(self.queries[name])]


def read_benchmark(name: str, settings: Sizes) -> Benchmark:
    """Return a benchmark, or raise `UnavailableError`."""
    own, stem = _FILES[name]
    folders = [folder / own for folder in settings.folders()]
    files = (folder / f"{stem}{end}" for folder in folders for end in (".nt", ".nt.xz"))
    data = next(filter(Path.is_file, files), None)
    queries: dict[str, list[str]] = {}
    for file in next(filter(None, (sorted(f.glob("queries/*-*.rq")) for f in folders)), ()):
        query = file.stem.partition("-")[0]
        if query in _UNASKED or (name in LARGE and query in _HEAVY):
            continue
        if len(queries.setdefault(query, [])) < settings.instances:
            queries[query].append(file.read_text(encoding="utf-8"))
    if data is None or not queries:
        raise UnavailableError(
            f"{stem}.nt, {stem}.nt.xz or queries of {name} in {' or '.join(map(str, folders))} "
            f"({_DATA} names a folder that has {own})"
        )
    pairs = [
        (client, server) for client, server in PAIRS
        if client in settings.clients and not (name in LARGE and server == servers.REFERENCE)
    ]  # fmt: skip
    return Benchmark(name, data, queries, pairs)


def answers_rightly(query: str, rows: SolutionBag, whole: SolutionBag) -> bool:
    """Compare rows with a `right_answer`."""
    if _GRAPH.search(query):
        # A graph is a set; clients may send a triple twice.
        return rows.keys() == whole.keys()
    cut = {name.upper(): int(number) for name, number in _LIMIT.findall(query)}
    left = max(0, whole.total() - cut.get("OFFSET", 0))
    return rows <= whole and rows.total() == min(left, cut.get("LIMIT", left))


def answer_of_oxigraph(store: pyoxigraph.Store, query: str, seconds: float) -> dict[str, Any]:
    """Return an answer as clients give it. What takes longer is ended: hence a forked process."""
    here, there = _FORKED.Pipe(duplex=False)
    process = _FORKED.Process(target=_evaluate, args=(store, query, there))
    process.start()
    there.close()
    try:
        if here.poll(seconds):
            answer: dict[str, Any] = here.recv()
            return answer
        return {"error": "the time is over", "seconds": seconds, "cpu": seconds}
    except EOFError:
        return {"error": "oxigraph did not answer", "seconds": 0.0, "cpu": 0.0}
    finally:
        process.kill()
        process.join()
        here.close()


def _evaluate(store: pyoxigraph.Store, query: str, output: Connection) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    rows = list(solution_bag(store.query(query)).elements())
    used = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    output.send({"rows": rows, **used})


@dataclass(frozen=True, slots=True)
class OpenedTrack:
    """Running servers, the data in memory, and the right answers by query and instance.

    Answers are without the limit that leaves a choice; oxigraph may have none in the time. Without
    memory for it there is no store.
    """

    benchmark: Benchmark
    seconds: float
    servers: Mapping[str, ProxiedServer]
    store: pyoxigraph.Store | None
    answers: Mapping[tuple[str, int], SolutionBag | None]
    stack: ExitStack
    clients: dict[str, Process] = field(default_factory=dict)
    too_slow: set[tuple[tuple[str, str], str]] = field(default_factory=set)

    def prepare(self, pair: tuple[str, str]) -> None:
        """Start a client that has not begun or was ended, and let it ask what it can answer."""
        for attempt in range(_ATTEMPTS):
            if pair[0] == OXIGRAPH or pair[0] in self.clients:
                return
            self.clients[pair[0]] = self.stack.enter_context(query_client(pair[0]))
            if attempt < _ATTEMPTS - 1:
                self.warm_up(pair)

    def warm_up(self, pair: tuple[str, str]) -> None:
        """Ask each query once, small answers first, until the time is over."""
        end = time.perf_counter() + _WARM_SECONDS
        queries = [query for query in self.benchmark.queries if query not in _HEAVY]
        for query in sorted(queries, key=self._size):
            if (pair, query) in self.too_slow:
                continue
            if (left := end - time.perf_counter()) <= 0 or pair[0] not in self.clients:
                break
            self.ask(pair, [(query, 0)], left)

    def _size(self, query: str) -> float:
        answer = self.answers[query, 0]
        return math.inf if answer is None else answer.total()

    def ask(
        self, pair: tuple[str, str], asked: Sequence[tuple[str, int]], seconds: float
    ) -> Mapping[str, Any]:
        """Let a client ask queries at once, each within the time. What did not answer is ended."""
        client, server = pair
        texts = [self.benchmark.queries[query][k] for query, k in asked]
        if client == OXIGRAPH and self.store is not None:
            each = answer_of_oxigraph(self.store, texts[0], seconds)
            return {"answers": [each], "cpu": each["cpu"]}
        question = {"url": self.servers[server].url, "limit": seconds}
        if client == COMUNICA_BRTPF:
            question["type"] = "brtpf"
        order = {"questions": [{**question, "query": text} for text in texts]}
        begin = time.perf_counter()
        answer: Mapping[str, Any]
        try:
            answer = self.clients[client].ask(order, seconds + _READY_SECONDS)
        except ProcessFailedError as error:
            failed = {"error": str(error), "seconds": time.perf_counter() - begin}
            answer = {"answers": [failed] * len(asked), "cpu": None}
            self._end(client)
        late = [q for (q, _), each in zip(asked, answer["answers"], strict=True) if "error" in each]
        if len(asked) == 1:
            self.too_slow.update((pair, query) for query in late)
        if any(is_late(each, seconds) for each in answer["answers"]):
            # It still works on what was given up.
            self._end(client)
        return answer

    def _end(self, client: str) -> None:
        if client in self.clients:
            with suppress(ProcessFailedError):
                self.clients.pop(client).kill()


def is_late(answer: Mapping[str, Any], seconds: float) -> bool:
    """True for a query that was given up."""
    return "error" in answer and answer["seconds"] >= seconds * 0.9


class OpenTrack:
    """The experiment."""

    name = "open-track"
    question = (
        "What do the queries of BSBM and WatDiv take over fragments: with our client and with "
        "Comunica, over our server (plain, and restricted by bindings) and the reference server, "
        "one at a time and many at once; and with oxigraph, which has the data in its memory?"
    )
    settings = Sizes
    keys = ("benchmark", "latency_ms", "crowd", "server", "client", "query")
    values = (
        "instance", "seconds", "requests", "bytes", "client_cpu_ms", "server_cpu_ms", "results",
        "right", "timeouts", "failed", "why",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: items.Run) -> Iterable[items.MeasurementGroup]:
        """Return a group for each benchmark, whose contestants ask in turn."""
        for name in settings.benchmarks:
            sizes = settings.of_large() if name in LARGE else settings
            try:
                benchmark = read_benchmark(name, sizes)
            except UnavailableError as error:
                nothing = items.Measurement(
                    dict.fromkeys(self.keys, name), partial(_refuse, str(error))
                )
                yield items.MeasurementGroup(name, partial(_refuse, str(error)), [nothing])
                continue
            yield items.MeasurementGroup(
                name, partial(_open, benchmark, sizes, run),
                list(_measurements(benchmark, sizes)), _warm_up,
            )  # fmt: skip

    def report(self, results: Results) -> Iterable[items.Item]:
        """Return totals beside Comunica's, then crowds, then each query."""
        many = Results([row for row in results.rows if row["crowd"] != "1"], {}, {})
        single = results.where(crowd=1)
        for benchmark in single.distinct("benchmark"):
            own = single.where(benchmark=benchmark)
            for latency in own.distinct("latency_ms"):
                asked = own.where(latency_ms=latency)
                yield from _totals(benchmark, int(latency), asked)
                yield items.Figure(
                    f"seconds-{benchmark}-{latency}",
                    f"{benchmark}: seconds per query, {latency} ms of latency added", "query",
                    "seconds", _by_pair(asked, "seconds"), kind="bars", log_y=True,
                )  # fmt: skip
        yield from _crowds(many)
        keys = {
            "benchmark": "benchmark", "query": "query", "server": "server", "client": "client",
            "latency_ms": "latency, ms",
        }  # fmt: skip
        yield single.table("Query by query: means of the instances", keys, _COLUMNS)
        if many.rows:
            del keys["query"]
            keys["crowd"] = "clients at once"
            columns = {"results": "answered", **_COLUMNS}
            yield many.table("Many clients at once, one query each", keys, columns)
        yield from _exceptions(results)
        yield items.Target(
            "timeouts of our client, up to 64 at once",
            sum(results.numbers("timeouts", client=servers.OURS)) if many.rows else None, 0,
        )  # fmt: skip


def _measurements(benchmark: Benchmark, settings: Sizes) -> Iterator[items.Measurement]:
    for latency in settings.latencies:
        for crowd in settings.crowds:
            queries = [query for query in benchmark.queries if not latency or query not in _HEAVY]
            for query in queries if crowd == 1 else (_ALL,):
                for client, server in benchmark.pairs:
                    if (latency and server == servers.REFERENCE) or (
                        client == OXIGRAPH and (crowd > 1 or latency)
                    ):
                        continue
                    key: dict[str, str | int | float] = {
                        "benchmark": benchmark.name, "latency_ms": latency, "crowd": crowd,
                        "server": server, "client": client, "query": query,
                    }  # fmt: skip
                    if crowd == 1:
                        most = settings.far_instances if latency else settings.instances
                        measure = partial(
                            _measure_each, float(latency), (client, server), query, most
                        )
                    else:
                        measure = partial(_measure_crowd, float(latency), (client, server), crowd)
                    yield items.Measurement(key, measure, 1)


def _refuse(reason: str, _opened: object = None) -> Any:
    raise UnavailableError(reason)


def _pair_name(row: Mapping[str, str]) -> str:
    client = "our client" if row["client"] == servers.OURS else row["client"]
    return f"{client} on {row['server']}" if row["server"] != IN_PROCESS else client


def _by_pair(results: Results, column: str) -> dict[str, Any]:
    pairs = {_pair_name(row): (row["client"], row["server"]) for row in results.rows}
    return {
        name: results.points("query", column, numeric=False, client=client, server=server)
        for name, (client, server) in pairs.items()
    }


def _sums(results: Results, column: str) -> dict[tuple[str, str], float]:
    chosen = results.medians(("client", "server", "query", "instance"), (column,))
    queries = len({(row["query"], row["instance"]) for row in chosen.rows})
    rows: dict[tuple[str, str], list[float]] = {}
    for row in chosen.rows:
        if row[column]:
            rows.setdefault((row["client"], row["server"]), []).append(float(row[column]))
    return {pair: sum(each) for pair, each in rows.items() if len(each) == queries}


def _totals(benchmark: str, latency: int, asked: Results) -> Iterator[items.Item]:
    light = Results([row for row in asked.rows if row["query"] not in _HEAVY], {}, {})
    sums = {column: _sums(light, column) for column in _COLUMNS}
    seconds, requests = sums["seconds"], sums["requests"]
    heavy = [query for query in asked.distinct("query") if query in _HEAVY]
    but = "" if benchmark == "BSBM" else f" but {', '.join(_HEAVY)}"
    title = f"{benchmark}: all queries{but}, one after the other, {latency} ms of latency added"
    yield items.Table(
        title, ("client", "server", *_COLUMNS.values()),
        [(*pair, *(each.get(pair) for each in sums.values())) for pair in seconds],
    )  # fmt: skip
    said: list[str] = []
    slower: list[str] = []
    for server, words in _OVER.items():
        # Shares of Comunica's time over plain fragments of the same program.
        plain = (COMUNICA, servers.REFERENCE if server == servers.REFERENCE else OURS_PLAIN)
        ours, theirs = seconds.get((servers.OURS, server)), seconds.get(plain)
        share = ours / theirs if ours is not None and theirs else None
        if (limit := _SHARES.get((benchmark, server, latency))) is not None:
            what = f"{benchmark}, {latency} ms: seconds on {server} by Comunica's over plain TPF"
            yield items.Target(what, share, limit)
        if share is not None:
            said.append(
                f"{rounded(share)} {words} ({rounded(requests[servers.OURS, server])} requests to "
                f"{rounded(requests[plain])})"
            )
            if queries := _slower(asked, server):
                slower.append(f"{words} {', '.join(queries)}")
    if said:
        yield items.Finding(
            f"{benchmark} with {latency} ms of latency added: for all queries{but}, our client "
            f"takes these shares of the time that Comunica takes over plain fragments: "
            f"{', '.join(said)}; queries slower than with Comunica on the same server: "
            f"{'; '.join(slower) or 'none'}.",
            headline=True,
        )  # fmt: skip
    yield from _endpoint(f"{benchmark}, all queries{but}", sums)
    for query in heavy:
        rows = [row for row in asked.where(query=query).rows if row["seconds"]]
        took = [
            f"{_pair_name(row)} {'more than ' * bool(_unanswered(row))}"
            f"{rounded(float(row['seconds']))} s"
            for row in rows
        ]
        yield items.Finding(
            f"{benchmark} {query}, with tens of thousands of solutions, takes {'; '.join(took)}.",
            headline=True,
        )


def _endpoint(
    which: str, sums: Mapping[str, Mapping[tuple[str, str], float]]
) -> Iterator[items.Finding]:
    own, engine = (servers.OURS, RESTRICTED), (OXIGRAPH, IN_PROCESS)
    with suppress(KeyError):
        text = (
            f"{which}: oxigraph, an endpoint's engine with the data in its memory, answers in "
            f"{rounded(sums['seconds'][engine])} s and "
            f"{rounded(sums['client_cpu_ms'][engine] / 1000)} s of CPU; our client over our "
            f"default server takes {rounded(sums['seconds'][own])} s, of which the server uses "
            f"{rounded(sums['server_cpu_ms'][own] / 1000)} s of CPU."
        )
        yield items.Finding(text, headline=True)


def _slower(asked: Results, server: str) -> list[str]:
    queries = []
    for query in asked.distinct("query"):
        own = asked.where(query=query, server=server)
        ours, theirs = (
            own.numbers("seconds", client=name) for name in (servers.OURS, _COMUNICAS[server])
        )
        if ours and theirs and median(ours) > median(theirs):
            queries.append(query)
    return queries


def _crowds(many: Results) -> Iterator[items.Finding]:
    most = max(map(int, filter(str.isdecimal, many.distinct("crowd"))), default=0)
    largest = many.where(crowd=most)
    for benchmark, latency in dict.fromkeys(
        (row["benchmark"], row["latency_ms"]) for row in largest.rows
    ):
        own = largest.where(benchmark=benchmark, latency_ms=latency)
        answered = [
            f"{_pair_name(row)} {rounded(float(row['results']))} in {rounded(float(taken))} s"
            if (taken := row["seconds"]) else f"{_pair_name(row)} {rounded(float(row['results']))}"
            for row in own.rows
        ]  # fmt: skip
        yield items.Finding(
            f"{benchmark}, {most} clients at once with a query each, {latency} ms of latency "
            f"added, answered in time: {'; '.join(answered)}.",
            headline=True,
        )


def _exceptions(results: Results) -> Iterator[items.Finding]:
    number = f"{len(results.rows):,} measurements"
    wrong = [row for row in results.rows if row["right"] == "0"]
    yield items.Finding(
        f"{len(wrong):,} of {number} have an answer that differs from oxigraph's over the same "
        f"data{_names(wrong)}."
    )
    for column, what in (("timeouts", "exceeded the time limit"), ("failed", "failed")):
        rows = [row for row in results.rows if float(row[column] or 0)]
        count = sum(float(row[column]) for row in rows)
        yield items.Finding(f"{rounded(count)} queries of {number} {what}{_names(rows)}.")
    if unknown := [row for row in results.rows if not row["right"] and not _unanswered(row)]:
        yield items.Finding(
            f"{len(unknown):,} of {number} have no answer of oxigraph to compare with: it "
            f"exceeded the time limit itself, or the memory was too small{_names(unknown)}."
        )


def _unanswered(row: Mapping[str, str]) -> bool:
    return bool(float(row["timeouts"] or 0) + float(row["failed"] or 0))


def _names(rows: Iterable[Mapping[str, str]]) -> str:
    return "".join(
        dict.fromkeys(
            f"; {_pair_name(row)}, {row['benchmark']} {row['query']}, {row['latency_ms']} ms"
            for row in rows
        )
    )


@contextmanager
def _open(benchmark: Benchmark, settings: Sizes, run: items.Run) -> Iterator[OpenedTrack]:
    data = run.folder / f"{_FILES[benchmark.name][1]}.nt"
    if not data.exists():
        # In the one form of N-Triples that every program reads.
        reader = lzma.open if benchmark.data.suffix == ".xz" else open
        form, part = pyoxigraph.RdfFormat.N_TRIPLES, data.with_suffix(".part")
        with reader(benchmark.data, "rb") as file:
            pyoxigraph.serialize(pyoxigraph.parse(file, format=form), part, format=form)
        part.replace(data)
    store = None
    answers: dict[tuple[str, int], SolutionBag | None] = dict.fromkeys(benchmark.mix())
    if _HELD * data.stat().st_size < psutil.virtual_memory().available:
        store = pyoxigraph.Store()
        store.bulk_load(path=data)
        for query, k in answers:
            text = _LIMIT.sub("", benchmark.queries[query][k])
            answer = answer_of_oxigraph(store, text, settings.seconds)
            answers[query, k] = Counter(answer["rows"]) if "rows" in answer else None
    with ExitStack() as stack:
        servers = {}
        for name in dict.fromkeys(server for _, server in benchmark.pairs):
            if name == IN_PROCESS:
                continue
            try:
                opened = proxied_server(name, data, run.folder, run.static)
                servers[name] = stack.enter_context(opened)
            except UnavailableError as error:
                run.say(f"{name}: {error}")
        yield OpenedTrack(benchmark, settings.seconds, servers, store, answers, stack)


def _warm_up(opened: OpenedTrack) -> None:
    for pair in opened.benchmark.pairs:
        with suppress(UnavailableError):
            if pair[1] in opened.servers:
                opened.prepare(pair)
                opened.warm_up(pair)


def _measure(
    latency: float, pair: tuple[str, str], asked: Sequence[tuple[str, int]], opened: OpenedTrack
) -> dict[str, Any]:
    server = opened.servers.get(pair[1])
    passed: Mapping[str, int] = {}
    cpu = 0.0
    if pair[0] == OXIGRAPH:
        if opened.store is None:
            raise UnavailableError("oxigraph: the machine has too little memory for these data")
        answer = opened.ask(pair, asked, opened.seconds)
    elif server is None:
        raise UnavailableError(f"{pair[1]} is not running")
    else:
        opened.prepare(pair)
        server.passed(latency)
        before = server.server.process.usage()
        answer = opened.ask(pair, asked, opened.seconds)
        cpu = server.server.process.usage().since(before).cpu
        passed = server.passed(0.0)
    answers = answer["answers"]
    errors = [each for each in answers if "error" in each]
    late = [each for each in errors if is_late(each, opened.seconds)]
    reasons = [str(each["error"]) for each in errors if each not in late]
    right = [
        answers_rightly(
            opened.benchmark.queries[query][k], Counter(tuple(row) for row in each["rows"]), whole
        )
        for (query, k), each in zip(asked, answers, strict=True)
        if "rows" in each and (whole := opened.answers[query, k]) is not None
    ]
    return {
        "seconds": None if reasons else max(each["seconds"] for each in answers),
        "requests": passed.get("requests", 0),
        "bytes": passed.get("bytes", 0),
        "client_cpu_ms": None if answer["cpu"] is None else 1000 * answer["cpu"],
        "server_cpu_ms": 1000 * cpu,
        "results": (
            len(answers) - len(errors) if len(asked) > 1 else len(answers[0].get("rows", ()))
        ),
        "right": int(all(right)) if right else None,
        "timeouts": len(late),
        "failed": len(reasons),
        "why": reasons[0][:_LONGEST] if reasons else "",
    }


def _measure_each(
    latency: float, pair: tuple[str, str], query: str, most: int, opened: OpenedTrack
) -> Iterator[items.ResultRow]:
    for k in range(min(most, len(opened.benchmark.queries[query]))):
        yield {"instance": k, **_measure(latency, pair, [(query, k)], opened)}


def _measure_crowd(
    latency: float, pair: tuple[str, str], crowd: int, opened: OpenedTrack
) -> Iterator[items.ResultRow]:
    mix = [each for each in opened.benchmark.mix() if each[0] not in _HEAVY]
    asked = list(islice(cycle(mix), crowd))
    yield {"instance": 0, **_measure(latency, pair, asked, opened)}
