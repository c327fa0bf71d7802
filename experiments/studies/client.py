"""``client``: the client's cost by kind of query, server, client and latency."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias

import pyoxigraph

from annotations.clock import SystemClock
from experiments.errors import MeasurementError, UnavailableError
from experiments.free_port import free_port
from experiments.harness import peers
from experiments.harness.items import (
    Figure,
    Finding,
    Item,
    Measurement,
    MeasurementGroup,
    Point,
    ResultRow,
    Run,
    Table,
    Target,
)
from experiments.harness.processes import LOOPBACK, Process, child, started
from experiments.harness.report import rounded
from experiments.harness.results import Results
from experiments.harness.servers import (
    OURS,
    REFERENCE,
    Server,
    fragment_server,
    reference_data,
    reference_server,
)
from experiments.harness.static_loading import StaticLoading
from experiments.workloads import named_queries

# A shop: products, offers, reviews, and queries of all shapes over them.

SHOP = "http://example.org/shop/"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_TRIPLES_PER_PRODUCT = 52
_COUNTRIES = ("AT", "BE", "CZ", "DE", "DK", "ES", "FI", "FR", "IT", "NL", "PL", "SE")
_FEATURES = 100
_CATEGORIES = 61
_PRODUCERS = 50
_VENDORS = 50
_PEOPLE = 500
_WAREHOUSES = 5

_PREFIX = f"PREFIX : <{SHOP}>\n"

SHOP_LIMIT = 10

SHOP_QUERIES = {name: _PREFIX + query for name, query in named_queries("shop.rq").items()}
"""Queries by the name of their shape."""

UNLIMITED = {"limit": SHOP_QUERIES["limit"].replace(f" LIMIT {SHOP_LIMIT}", "")}
"""What a limit cuts, whichever solutions it lets through."""

GRAPH_FORMS = ("construct", "describe")
"""Those whose answer is a graph."""

IN_GRAPHS = ("graph", "any graph")
"""Those about named graphs, which not every server has."""

COMPARED = (
    "star", "chain", "snowflake", "optional", "filter", "distinct", "order+limit", "construct",
)  # fmt: skip
"""The eight queries that the target for the number of requests is about."""


@dataclass(frozen=True, slots=True)
class Shop:
    """The data: about so many triples."""

    triples: int
    seed: int

    def write(self, path: Path, *, graphs: bool = True) -> int:
        """Write N-Triples, or N-Quads with named graphs; return the number of triples."""
        lines = list(self.lines(graphs=graphs))
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return len(lines)

    def lines(self, *, graphs: bool = True) -> Iterator[str]:
        distinct = dict.fromkeys(self._lines())
        if graphs:
            distinct |= dict.fromkeys(self._stocks())
        return (f"{line} ." for line in distinct)

    def _lines(self) -> Iterator[str]:
        chance = random.Random(self.seed)
        products = max(1, self.triples // _TRIPLES_PER_PRODUCT)
        people = max(1, min(_PEOPLE, products))
        for kind, count in (("producer", _PRODUCERS), ("vendor", _VENDORS), ("person", people)):
            for number in range(count):
                country = _COUNTRIES[chance.randrange(len(_COUNTRIES))]
                yield f"{_iri(f'{kind}{number}')} {_iri('country')} {_iri(country)}"
                yield f"{_iri(f'{kind}{number}')} {_iri('name')} {_text(f'{kind} no {number}')}"
        for number in range(_FEATURES):
            yield f"{_iri(f'feature{number}')} {_iri('name')} {_text(f'feature no {number}')}"
        for number in range(1, _CATEGORIES):
            within = (number - 1) // 4
            yield f"{_iri(f'category{number}')} {_iri('within')} {_iri(f'category{within}')}"
        for number in range(products):
            yield from self._product(number, chance)
        for number in range(3 * products):
            offer = _iri(f"offer{number}")
            yield f"{offer} {_iri('product')} {_iri(f'product{chance.randrange(products)}')}"
            yield f"{offer} {_iri('vendor')} {_iri(f'vendor{chance.randrange(_VENDORS)}')}"
            yield f"{offer} {_iri('price')} {_integer(chance.randrange(5, 1000))}"
            yield f"{offer} {_iri('days')} {_integer(chance.randrange(1, 15))}"
        for number in range(6 * products):
            review = _iri(f"review{number}")
            yield f"{review} {_iri('product')} {_iri(f'product{chance.randrange(products)}')}"
            yield f"{review} {_iri('reviewer')} {_iri(f'person{chance.randrange(people)}')}"
            yield f"{review} {_iri('rating')} {_integer(chance.randrange(1, 6))}"
            yield f"{review} {_iri('helpful')} {_integer(chance.randrange(100))}"
            yield f"{review} {_iri('title')} {_text(f'review no {number}')}"
        for number in range(_CATEGORIES):
            yield f"{_iri(f'category{number}')} {_iri('name')} {_text(f'category no {number}')}"
        for number in range(people):
            # Groups of ten, in each of which everybody is known.
            group = number - number % 10
            for knows in {group + (number + 1) % 10, group + chance.randrange(10)}:
                yield f"{_iri(f'person{number}')} {_iri('knows')} {_iri(f'person{knows}')}"

    def _stocks(self) -> Iterator[str]:
        chance = random.Random(self.seed)
        for number in range(0, max(1, self.triples // _TRIPLES_PER_PRODUCT), 2):
            stock, warehouse = _integer(chance.randrange(100)), chance.randrange(_WAREHOUSES)
            product = _iri(f"product{number}")
            yield f"{product} {_iri('stock')} {stock} {_iri(f'warehouse{warehouse}')}"

    def _product(self, number: int, chance: random.Random) -> Iterator[str]:
        product = _iri(f"product{number}")
        yield f"{product} {_iri('label')} {_text(f'product no {number}')}"
        yield f"{product} {_iri('producer')} {_iri(f'producer{chance.randrange(_PRODUCERS)}')}"
        yield f"{product} {_iri('category')} {_iri(f'category{chance.randrange(9, _CATEGORIES)}')}"
        yield f"{product} {_iri('price')} {_integer(chance.randrange(5, 1000))}"
        for _ in range(3):
            yield f"{product} {_iri('feature')} {_iri(f'feature{chance.randrange(_FEATURES)}')}"
        if number % 3 == 0:
            yield f"{product} {_iri('discount')} {_integer(chance.randrange(5, 50))}"


def _iri(name: str) -> str:
    return f"<{SHOP}{name}>"


def _text(text: str) -> str:
    return f'"{text}"'


def _integer(value: int) -> str:
    return f'"{value}"^^<{_XSD}integer>'


COMUNICA = "Comunica"
COMUNICA_BRTPF = "Comunica, source type brtpf"
OURS_PLAIN = "ours, plain TPF"
RESTRICTED = "ours, brTPF and large pages"
SolutionBag: TypeAlias = Counter[tuple[str | None, ...]]

_ANSWER_SECONDS = 300.0
_READY_SECONDS = 30.0
_COLUMNS = {
    "requests": "requests", "bytes": "bytes", "first_seconds": "first result, s",
    "seconds": "all, s", "client_cpu_ms": "CPU of client, ms", "server_cpu_ms": "CPU of server, ms",
}  # fmt: skip
_WARM_UP = ("chain", "optional", "order+limit")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the experiment; `latencies` are milliseconds of each round trip."""

    triples: int = 100_000
    latencies: tuple[int, ...] = (0, 20)
    clients: tuple[str, ...] = (OURS, COMUNICA, COMUNICA_BRTPF)
    servers: tuple[str, ...] = (OURS_PLAIN, RESTRICTED, REFERENCE)
    queries: tuple[str, ...] = tuple(SHOP_QUERIES)

    @classmethod
    def quick(cls) -> Self:
        """Use a tenth of the data, some of the queries."""
        return cls(triples=10_000, queries=tuple(SHOP_QUERIES)[::10])


@dataclass(frozen=True, slots=True)
class ProxiedServer:
    """A server, the proxy before it, and the URL of its dataset behind both."""

    server: Server
    proxy: Process
    url: str

    def passed(self, delay: float) -> Mapping[str, int]:
        """Return the proxy's counts since the last call; set the delay in milliseconds."""
        return self.proxy.ask({"delay": delay}, _READY_SECONDS)


@dataclass(frozen=True, slots=True)
class OpenedClients:
    """Servers and clients by name, and the right answers by query."""

    places: Mapping[str, ProxiedServer]
    clients: Mapping[str, Process]
    answers: Mapping[str, SolutionBag]

    def ask(self, client: str, server: str, query: str) -> Mapping[str, Any]:
        """Let a client answer a query, or raise `MeasurementError`."""
        if client not in self.clients or server not in self.places:
            raise UnavailableError(f"{client} or {server} is not running")
        question = {"query": SHOP_QUERIES[query], "url": self.places[server].url}
        if client == COMUNICA_BRTPF:
            question["type"] = "brtpf"
        answer = self.clients[client].ask(question, _ANSWER_SECONDS)
        if "error" in answer:
            raise MeasurementError(str(answer["error"]))
        return answer


class Clients:
    """The experiment."""

    name = "client"
    question = (
        "How many requests, bytes and seconds, and how much CPU, does a SPARQL query over "
        "fragments need, by its shape: with our client and with Comunica, over plain fragments, "
        "over our bindings-restricted fragments (where Comunica is told what they are, too), and "
        "over the reference server?"
    )
    settings = Sizes
    keys = ("triples", "latency_ms", "server", "client", "query")
    values = (
        "requests", "bytes", "first_seconds", "seconds", "client_cpu_ms", "server_cpu_ms",
        "results", "right",
    )  # fmt: skip

    def groups(self, settings: Sizes, run: Run) -> Iterable[MeasurementGroup]:
        """Return one group with all servers and clients, asking in turn."""
        measurements = [
            Measurement(
                {
                    "triples": settings.triples,
                    "latency_ms": latency,
                    "server": server,
                    "client": client,
                    "query": query,
                },
                partial(_measure, float(latency), server, client, query),
                # What the network adds is the same each time.
                1 if latency else None,
            )
            for latency in settings.latencies
            for query in settings.queries
            for server in settings.servers
            for client in settings.clients
            if client != COMUNICA_BRTPF or server == RESTRICTED
            if server != REFERENCE or query not in IN_GRAPHS
        ]
        yield MeasurementGroup("queries", partial(_open, settings, run), measurements, _warm_up)

    def report(self, results: Results) -> Iterable[Item]:
        latencies = results.distinct("latency_ms")
        yield from _totals(results)
        first = results.where(latency_ms=latencies[0])
        yield Figure(
            "requests", "Requests per query", "query", "requests", _by_pair(first, "requests"),
            kind="bars", log_y=True,
        )  # fmt: skip
        for latency in latencies:
            yield Figure(
                f"seconds-{latency}", f"Seconds per query, {latency} ms of latency added", "query",
                "seconds", _by_pair(results.where(latency_ms=latency), "seconds"), kind="bars",
                log_y=True,
            )  # fmt: skip
        keys = {
            "query": "query", "server": "server", "client": "client", "latency_ms": "latency, ms",
        }  # fmt: skip
        yield results.table("Query by query", keys, _COLUMNS)
        wrong = [row for row in results.rows if row["right"] == "0"]
        listed = dict.fromkeys(
            f"; {_pair_name(row['client'], row['server'])}, {row['query']}" for row in wrong
        )
        yield Finding(
            f"{len(wrong):,} of {len(results.rows):,} answers differ from those of pyoxigraph over "
            f"the same data{''.join(listed)}."
        )
        triples = int(results.distinct("triples")[0])
        for column, server, latency, limit, compared in (
            ("requests", OURS_PLAIN, latencies[0], 900.0, ""),
            ("requests", RESTRICTED, latencies[0], 120.0, ""),
            (
                "seconds", RESTRICTED, latencies[-1], 6.0,
                "with 20 ms on 105,773 other triples: Comunica 29.9, Client.js 23.4",
            ),
        ):  # fmt: skip
            chosen = results.where(latency_ms=latency, client=OURS, server=server)
            yield Target(
                f"{column} of our client for 8 queries on {triples:,} triples, {latency} ms of "
                f"latency added, {server}",
                total(chosen, column, COMPARED), limit, compared=compared,
            )  # fmt: skip


def _pair_name(client: str, server: str) -> str:
    return f"{'our client' if client == OURS else client} on {server}"


def _by_pair(results: Results, column: str) -> dict[str, list[Point]]:
    pairs = dict.fromkeys((row["client"], row["server"]) for row in results.rows)
    return {
        _pair_name(client, server): results.points(
            "query", column, numeric=False, client=client, server=server
        )
        for client, server in pairs
    }


def total(results: Results, column: str, queries: Sequence[str]) -> float | None:
    """Return the sum over queries of a column's mean, if all were measured."""
    means = [results.mean(column, query=query) for query in queries]
    measured = [mean for mean in means if mean is not None]
    return sum(measured) if len(measured) == len(queries) and measured else None


def _totals(results: Results) -> Iterator[Item]:
    queries = results.distinct("query")
    rows = []
    for latency in results.distinct("latency_ms"):
        for client, server in dict.fromkeys((row["client"], row["server"]) for row in results.rows):
            chosen = results.where(latency_ms=latency, client=client, server=server)
            sums = {column: total(chosen, column, queries) for column in _COLUMNS}
            rows.append((_pair_name(client, server), latency, *sums.values()))
            if sums["requests"] and sums["seconds"]:
                yield Finding(
                    f"{_pair_name(client, server)}: {len(queries)} queries with {latency} ms of "
                    f"latency added take {rounded(sums['requests'])} requests and "
                    f"{rounded(sums['seconds'])} s.",
                    headline=latency == results.distinct("latency_ms")[-1],
                )
    yield Table("All queries, one after the other", ("", "latency, ms", *_COLUMNS.values()), rows)


@contextmanager
def _open(settings: Sizes, run: Run) -> Iterator[OpenedClients]:
    shop = Shop(settings.triples, run.seed)
    quads, triples = run.folder / "shop.nq", run.folder / "shop.nt"
    for file in (quads, triples):
        if not file.exists():
            shop.write(file, graphs=file is quads)
    answers = right_answers(quads, settings.queries)
    with ExitStack() as stack:
        places = {}
        for name in settings.servers:
            try:
                data = triples if name == REFERENCE else quads
                places[name] = stack.enter_context(
                    proxied_server(name, data, run.folder, run.static)
                )
            except UnavailableError as error:
                run.say(f"{name}: {error}")
        clients = {}
        for name in settings.clients:
            try:
                clients[name] = stack.enter_context(query_client(name))
            except UnavailableError as error:
                run.say(f"{name}: {error}")
        yield OpenedClients(places, clients, answers)


@contextmanager
def proxied_server(
    name: str, data: Path, folder: Path, static: StaticLoading
) -> Iterator[ProxiedServer]:
    """Serve a file of RDF behind a proxy, whose URL is its base URL; the dataset has its name."""
    dataset = data.name.partition(".")[0]
    port = free_port()
    base = f"http://{LOOPBACK}:{port}/"
    with ExitStack() as stack:
        if name == REFERENCE:
            served = reference_data(data, folder)
            server = stack.enter_context(
                reference_server(served, dataset, folder / "reference", base_url=base)
            )
        else:
            store = folder / dataset
            if not store.exists():
                static.load({store: data}, SystemClock().now())
            config = "max_values = 0\nmax_page_size = 100\n" if name == OURS_PLAIN else ""
            server = stack.enter_context(fragment_server(folder, config, store, base_url=base))
        order = child("experiments.harness.delay_proxy:DelayProxy", str(server.port), str(port))
        proxy = stack.enter_context(started("delay proxy", order))
        proxy.ask({"delay": 0.0}, _READY_SECONDS)
        yield ProxiedServer(server, proxy, base + dataset)


@contextmanager
def query_client(name: str) -> Iterator[Process]:
    """Start the process of a client; see `experiments.studies.processes.answer_question`."""
    if name in (COMUNICA, COMUNICA_BRTPF):
        script = Path(__file__).with_name("native") / "comunica.mjs"
        peers.package("@comunica/query-sparql")
        order = [peers.new_node(), str(script), str(peers.node_modules())]
    else:
        order = child("experiments.studies.processes:answer_question")
    with started(name, order) as process:
        yield process


def right_answers(quads: Path, queries: Iterable[str]) -> dict[str, SolutionBag]:
    """Return pyoxigraph's answers, without limits that leave a choice."""
    store = pyoxigraph.Store()
    store.bulk_load(path=quads, format=pyoxigraph.RdfFormat.N_QUADS)
    return {
        name: solution_bag(store.query(UNLIMITED.get(name, SHOP_QUERIES[name]))) for name in queries
    }


def is_right(query: str, rows: SolutionBag, answer: SolutionBag) -> bool:
    """Compare rows with a result of `right_answers`."""
    if query in GRAPH_FORMS:
        # A graph is a set; clients may send a triple twice.
        rows = Counter(rows.keys())
    if query in UNLIMITED:
        return rows.total() == SHOP_LIMIT and rows <= answer
    return rows == answer


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


def _warm_up(opened: OpenedClients) -> None:
    for client in opened.clients:
        for server in opened.places:
            if client == COMUNICA_BRTPF and server != RESTRICTED:
                continue
            for query in _WARM_UP:
                if query in opened.answers:
                    opened.ask(client, server, query)


def _measure(
    latency: float, server: str, client: str, query: str, opened: OpenedClients
) -> Iterator[ResultRow]:
    if server not in opened.places:
        raise UnavailableError(f"{server} is not running")
    place = opened.places[server]
    place.passed(latency)
    before = place.server.process.usage()
    answer = opened.ask(client, server, query)
    used = place.server.process.usage().since(before)
    passed = place.passed(0.0)
    rows = Counter(tuple(row) for row in answer["rows"])
    first = answer["first"]
    yield {
        "requests": passed["requests"],
        "bytes": passed["bytes"],
        "first_seconds": answer["seconds"] if first is None else first,
        "seconds": answer["seconds"],
        "client_cpu_ms": 1000 * answer["cpu"],
        "server_cpu_ms": 1000 * used.cpu,
        "results": rows.total(),
        "right": int(is_right(query, rows, opened.answers[query])),
    }
