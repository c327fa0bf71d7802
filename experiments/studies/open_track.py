"""``open-track``: BSBM and WatDiv, other people's benchmarks, over fragments.

Sources: C. Bizer, A. Schultz: The Berlin SPARQL Benchmark, 2009; G. Aluç, O. Hartig, M. T. Özsu,
K. Daudjee: Diversified Stress Testing of RDF Data Management Systems, ISWC 2014.
"""

import lzma
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

import pyoxigraph

from experiments.errors import MeasurementError, UnavailableError
from experiments.harness.items import (
    Figure,
    Finding,
    Item,
    Measurement,
    MeasurementGroup,
    ResultRow,
    Run,
    Table,
    Target,
)
from experiments.harness.processes import Process
from experiments.harness.report import rounded
from experiments.harness.results import Results
from experiments.harness.servers import OURS, REFERENCE
from experiments.studies.client import (
    COMUNICA,
    COMUNICA_BRTPF,
    OURS_PLAIN,
    RESTRICTED,
    ProxiedServer,
    SolutionBag,
    proxied_server,
    query_client,
    solution_bag,
)

_DATA: Final = "TPF_OPEN_TRACK"
_FILES: Final = {"BSBM": "bsbm", "WatDiv": "watdiv"}
_UNASKED: Final = ("06",)
"""A regular expression over all labels, which nobody measures over fragments."""
OXIGRAPH: Final = "oxigraph"
IN_PROCESS: Final = "in process"
PAIRS: Final = (
    (OURS, OURS_PLAIN), (OURS, RESTRICTED), (OURS, REFERENCE),
    (COMUNICA, OURS_PLAIN), (COMUNICA_BRTPF, RESTRICTED), (COMUNICA, REFERENCE),
    (OXIGRAPH, IN_PROCESS),
)  # fmt: skip
"""Clients and servers. Oxigraph reads the data without a network: what an endpoint can do."""
_COMUNICAS: Final = {OURS_PLAIN: COMUNICA, RESTRICTED: COMUNICA_BRTPF, REFERENCE: COMUNICA}
_SHARES: Final = {
    ("BSBM", OURS_PLAIN, 0): 1 / 3, ("WatDiv", OURS_PLAIN, 0): 1 / 4,
    ("BSBM", RESTRICTED, 0): 1 / 6, ("WatDiv", RESTRICTED, 0): 1 / 6,
    ("BSBM", OURS_PLAIN, 50): 1 / 4, ("WatDiv", OURS_PLAIN, 50): 1 / 4,
    ("BSBM", RESTRICTED, 50): 1 / 10, ("WatDiv", RESTRICTED, 50): 1 / 10,
}  # fmt: skip
"""Targets: seconds of our client by those of Comunica over plain fragments."""
_COLUMNS: Final = {
    "seconds": "seconds", "requests": "requests", "bytes": "bytes",
    "client_cpu_ms": "CPU of client, ms", "server_cpu_ms": "CPU of server, ms",
    "timeouts": "timeouts",
}  # fmt: skip
_ALL: Final = "all"
"""Stands where a query would: many clients at once, each with the next one of the mix."""
_READY_SECONDS: Final = 60.0
_LIMIT: Final = re.compile(r"\b(LIMIT|OFFSET)\s+(\d+)", re.IGNORECASE)
_GRAPH: Final = re.compile(r"\b(CONSTRUCT|DESCRIBE)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes: instances of each query, latencies in milliseconds, clients that ask at once."""

    benchmarks: tuple[str, ...] = tuple(_FILES)
    instances: int = 3
    latencies: tuple[int, ...] = (0, 50)
    crowds: tuple[int, ...] = (1, 8, 64)
    seconds: float = 60.0
    clients: tuple[str, ...] = tuple(dict.fromkeys(client for client, _ in PAIRS))
    data: str = ""

    def pairs(self) -> list[tuple[str, str]]:
        return [pair for pair in PAIRS if pair[0] in self.clients]

    @classmethod
    def quick(cls) -> Self:
        """Use one instance of each query of BSBM, without latency and crowds."""
        return cls(("BSBM",), instances=1, latencies=(0,), crowds=(1,))


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Data as xz-compressed N-Triples, and the instances of each query."""

    name: str
    data: Path
    queries: Mapping[str, Sequence[str]]

    def mix(self) -> list[tuple[str, int]]:
        """Return query and instance: the first instances of all, then the second ones."""
        most = max(map(len, self.queries.values()))
        numbered = ((name, k) for k in range(most) for name in self.queries)
        return [(name, k) for name, k in numbered if k < len(self.queries[name])]


def read_benchmark(name: str, folder: Path, instances: int) -> Benchmark:
    """Return a benchmark, or raise `UnavailableError`."""
    own = folder / _FILES[name]
    data = next(iter(sorted(own.glob("*.nt.xz"))), None)
    queries: dict[str, list[str]] = {}
    for file in sorted((own / "queries").glob("*-*.rq")):
        query = file.stem.partition("-")[0]
        if query not in _UNASKED and len(queries.setdefault(query, [])) < instances:
            queries[query].append(file.read_text(encoding="utf-8"))
    if data is None or not queries:
        raise UnavailableError(f"no data of {name} in {own} ({_DATA} names the folder)")
    return Benchmark(name, data, queries)


def right_answer(store: pyoxigraph.Store, query: str) -> SolutionBag:
    """Return the answer, without the limit that leaves a choice."""
    return solution_bag(store.query(_LIMIT.sub("", query)))


def answers_rightly(query: str, rows: SolutionBag, whole: SolutionBag) -> bool:
    """Compare rows with a `right_answer`."""
    if _GRAPH.search(query):
        # A graph is a set; clients may send a triple twice.
        return rows.keys() == whole.keys()
    cut = {name.upper(): int(number) for name, number in _LIMIT.findall(query)}
    left = max(0, whole.total() - cut.get("OFFSET", 0))
    return rows <= whole and rows.total() == min(left, cut.get("LIMIT", left))


@dataclass(frozen=True, slots=True)
class OpenedTrack:
    """Running servers, the data in memory, and the right answers by query and instance."""

    benchmark: Benchmark
    settings: Sizes
    servers: Mapping[str, ProxiedServer]
    store: pyoxigraph.Store
    answers: Mapping[tuple[str, int], SolutionBag]
    stack: ExitStack
    clients: dict[str, Process]

    def client(self, name: str) -> Process:
        """Return the process of a client, started if need be."""
        if name not in self.clients:
            self.clients[name] = self.stack.enter_context(query_client(name))
        return self.clients[name]

    def ask(self, pair: tuple[str, str], asked: Sequence[tuple[str, int]]) -> Mapping[str, Any]:
        """Let a client ask queries at once, each within the time."""
        client, server = pair
        texts = [self.benchmark.queries[query][k] for query, k in asked]
        if client == OXIGRAPH:
            wall, cpu = time.perf_counter(), time.process_time()
            bags = [solution_bag(self.store.query(text)) for text in texts]
            seconds = time.perf_counter() - wall
            answers = [{"rows": list(bag.elements()), "seconds": seconds} for bag in bags]
            return {"answers": answers, "cpu": time.process_time() - cpu}
        if server not in self.servers:
            raise UnavailableError(f"{server} is not running")
        question = {"url": self.servers[server].url, "limit": self.settings.seconds}
        if client == COMUNICA_BRTPF:
            question["type"] = "brtpf"
        order = {"questions": [{**question, "query": text} for text in texts]}
        answer = self.client(client).ask(order, 2 * self.settings.seconds + _READY_SECONDS)
        if any(self.is_late(each) for each in answer["answers"]):
            # It still works on what was given up.
            self.clients.pop(client).kill()
        return answer

    def is_late(self, answer: Mapping[str, Any]) -> bool:
        """True for a query that was given up."""
        return "error" in answer and answer["seconds"] >= self.settings.seconds * 0.9


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
        "right", "timeouts",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """Return a group for each benchmark, whose contestants ask in turn."""
        default = os.environ.get(_DATA) or Path(__file__).parents[3] / "shared/data"
        folder = Path(settings.data or default)
        for name in settings.benchmarks:
            try:
                benchmark = read_benchmark(name, folder, settings.instances)
            except UnavailableError as error:
                nothing = Measurement(dict.fromkeys(self.keys, name), partial(_refuse, str(error)))
                yield MeasurementGroup(name, partial(_refuse, str(error)), [nothing])
                continue
            yield MeasurementGroup(
                name, partial(_open, benchmark, settings, run),
                list(_measurements(benchmark, settings)), _warm_up,
            )  # fmt: skip

    def report(self, results: Results) -> Iterable[Item]:
        """Return totals beside Comunica's, then each query, then crowds."""
        single = results.where(crowd=1)
        for benchmark in single.distinct("benchmark"):
            own = single.where(benchmark=benchmark)
            for latency in own.distinct("latency_ms"):
                asked = own.where(latency_ms=latency)
                yield from _totals(benchmark, int(latency), asked)
                yield Figure(
                    f"seconds-{benchmark}-{latency}",
                    f"{benchmark}: seconds per query, {latency} ms of latency added", "query",
                    "seconds", _by_pair(asked, "seconds"), kind="bars", log_y=True,
                )  # fmt: skip
        keys = {
            "benchmark": "benchmark", "query": "query", "server": "server", "client": "client",
            "latency_ms": "latency, ms",
        }  # fmt: skip
        yield single.table("Query by query: means of the instances", keys, _COLUMNS)
        many = Results([row for row in results.rows if row["crowd"] != "1"], {}, {})
        if many.rows:
            del keys["query"]
            keys["crowd"] = "clients at once"
            columns = {"results": "answered", **_COLUMNS}
            yield many.table("Many clients at once, one query each", keys, columns)
        wrong = [row for row in results.rows if row["right"] == "0"]
        listed = dict.fromkeys(
            f"; {_pair_name(row)}, {row['benchmark']} {row['query']}" for row in wrong
        )
        yield Finding(
            f"{len(wrong):,} of {len(results.rows):,} measurements have an answer that differs "
            f"from oxigraph's over the same data{''.join(listed)}."
        )
        yield Target(
            "timeouts of our client, up to 64 at once",
            sum(results.numbers("timeouts", client=OURS)) if many.rows else None, 0,
        )  # fmt: skip


def _measurements(benchmark: Benchmark, settings: Sizes) -> Iterator[Measurement]:
    for latency in settings.latencies:
        for crowd in settings.crowds:
            for query in benchmark.queries if crowd == 1 else (_ALL,):
                for client, server in settings.pairs():
                    if client == OXIGRAPH and (crowd > 1 or latency):
                        continue
                    key: dict[str, str | int | float] = {
                        "benchmark": benchmark.name, "latency_ms": latency, "crowd": crowd,
                        "server": server, "client": client, "query": query,
                    }  # fmt: skip
                    if crowd == 1:
                        measure = partial(_measure_each, float(latency), (client, server), query)
                    else:
                        measure = partial(_measure_crowd, float(latency), (client, server), crowd)
                    yield Measurement(key, measure, 1 if latency or crowd > 1 else None)


def _refuse(reason: str, _opened: object = None) -> Any:
    raise UnavailableError(reason)


def _pair_name(row: Mapping[str, str]) -> str:
    client = "our client" if row["client"] == OURS else row["client"]
    return f"{client} on {row['server']}" if row["server"] != IN_PROCESS else client


def _by_pair(results: Results, column: str) -> dict[str, Any]:
    pairs = {_pair_name(row): (row["client"], row["server"]) for row in results.rows}
    return {
        name: results.points("query", column, numeric=False, client=client, server=server)
        for name, (client, server) in pairs.items()
    }


def _sums(results: Results, column: str) -> dict[tuple[str, str], float]:
    """Return the sums of medians by client and server, of those who answered all queries."""
    chosen = results.medians(("client", "server", "query", "instance"), (column,))
    queries = len({(row["query"], row["instance"]) for row in chosen.rows})
    rows: dict[tuple[str, str], list[float]] = {}
    for row in chosen.rows:
        if row[column]:
            rows.setdefault((row["client"], row["server"]), []).append(float(row[column]))
    return {pair: sum(each) for pair, each in rows.items() if len(each) == queries}


def _totals(benchmark: str, latency: int, asked: Results) -> Iterator[Item]:
    sums = {column: _sums(asked, column) for column in _COLUMNS}
    seconds, requests = sums["seconds"], sums["requests"]
    title = f"{benchmark}: all queries, one after the other, {latency} ms of latency added"
    yield Table(
        title, ("client", "server", *_COLUMNS.values()),
        [(*pair, *(each.get(pair) for each in sums.values())) for pair in seconds],
    )  # fmt: skip
    theirs = seconds.get((COMUNICA, OURS_PLAIN))
    for server in (OURS_PLAIN, RESTRICTED):
        ours = seconds.get((OURS, server))
        share = ours / theirs if ours is not None and theirs else None
        if (limit := _SHARES.get((benchmark, server, latency))) is not None:
            what = f"{benchmark}, {latency} ms: seconds on {server} by Comunica's over plain TPF"
            yield Target(what, share, limit)
        if share is not None:
            slower = _slower(asked, server)
            yield Finding(
                f"{benchmark} with {latency} ms of latency added: our client on {server} takes "
                f"{rounded(share)} of Comunica's time over plain fragments, with "
                f"{rounded(requests[OURS, server])} requests to "
                f"{rounded(requests[COMUNICA, OURS_PLAIN])}; slower than Comunica on the same "
                f"server: {', '.join(slower) or 'no query'}.",
                headline=True,
            )


def _slower(asked: Results, server: str) -> list[str]:
    queries = []
    for query in asked.distinct("query"):
        own = asked.where(query=query, server=server)
        ours, theirs = (own.numbers("seconds", client=name) for name in (OURS, _COMUNICAS[server]))
        if ours and theirs and median(ours) > median(theirs):
            queries.append(query)
    return queries


@contextmanager
def _open(benchmark: Benchmark, settings: Sizes, run: Run) -> Iterator[OpenedTrack]:
    data = run.folder / f"{_FILES[benchmark.name]}.nt"
    store = pyoxigraph.Store()
    with lzma.open(benchmark.data) as packed:
        store.bulk_load(packed, format=pyoxigraph.RdfFormat.N_TRIPLES)
    # In the one form of N-Triples that every program reads.
    graph = pyoxigraph.DefaultGraph()
    store.dump(data, format=pyoxigraph.RdfFormat.N_TRIPLES, from_graph=graph)
    answers = {
        (query, k): right_answer(store, benchmark.queries[query][k]) for query, k in benchmark.mix()
    }
    with ExitStack() as stack:
        servers = {}
        for name in (OURS_PLAIN, RESTRICTED, REFERENCE):
            try:
                opened = proxied_server(name, data, run.folder, run.static)
                servers[name] = stack.enter_context(opened)
            except UnavailableError as error:
                run.say(f"{name}: {error}")
        yield OpenedTrack(benchmark, settings, servers, store, answers, stack, {})


def _warm_up(opened: OpenedTrack) -> None:
    for pair in opened.settings.pairs():
        with suppress(UnavailableError):
            for query in opened.benchmark.queries:
                opened.ask(pair, [(query, 0)])


def _measure(
    latency: float, pair: tuple[str, str], asked: Sequence[tuple[str, int]], opened: OpenedTrack
) -> dict[str, Any]:
    server = opened.servers.get(pair[1])
    passed: Mapping[str, int] = {}
    cpu = 0.0
    if server is None:
        answer = opened.ask(pair, asked)
    else:
        opened.client(pair[0])
        server.passed(latency)
        before = server.server.process.usage()
        answer = opened.ask(pair, asked)
        cpu = server.server.process.usage().since(before).cpu
        passed = server.passed(0.0)
    answers = answer["answers"]
    for each in answers:
        if "error" in each and not opened.is_late(each):
            raise MeasurementError(str(each["error"]))
    right = [
        answers_rightly(
            opened.benchmark.queries[query][k],
            Counter(tuple(row) for row in each["rows"]),
            opened.answers[query, k],
        )
        for (query, k), each in zip(asked, answers, strict=True)
        if "rows" in each
    ]
    return {
        "seconds": max(each["seconds"] for each in answers),
        "requests": passed.get("requests", 0),
        "bytes": passed.get("bytes", 0),
        "client_cpu_ms": 1000 * answer["cpu"],
        "server_cpu_ms": 1000 * cpu,
        "results": len(right) if len(asked) > 1 else len(answers[0].get("rows", ())),
        "right": int(all(right)),
        "timeouts": sum(map(opened.is_late, answers)),
    }


def _measure_each(
    latency: float, pair: tuple[str, str], query: str, opened: OpenedTrack
) -> Iterator[ResultRow]:
    for k in range(len(opened.benchmark.queries[query])):
        yield {"instance": k, **_measure(latency, pair, [(query, k)], opened)}


def _measure_crowd(
    latency: float, pair: tuple[str, str], crowd: int, opened: OpenedTrack
) -> Iterator[ResultRow]:
    asked = list(islice(cycle(opened.benchmark.mix()), crowd))
    yield {"instance": 0, **_measure(latency, pair, asked, opened)}
