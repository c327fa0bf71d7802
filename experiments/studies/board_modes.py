"""The modes in which a board is kept up to date: what server there is, and what its clients do."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotations.methods import METHODS
from experiments.errors import UnavailableError
from experiments.free_port import free_port
from experiments.harness.cache import http_cache
from experiments.harness.processes import LOOPBACK, Process
from experiments.harness.servers import TOKEN, Server, fragment_server
from experiments.workloads.board import Board, DepartureWindow
from tpf_spark.errors import SparkError
from tpf_spark.java import find_java
from tpf_spark.session import SparkSettings

BOARD_DATASET = "trains"
_STREAM = "streams/trains"
_BEHIND = " behind nginx"


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode.

    Args:
        name: as figures call it.
        engine: ``""``: clients evaluate over fragments; otherwise the language in which the
            server takes their queries, ``cqels`` or ``csparql``.
        method: annotation method of a server that states no labels on its pages, as servers of
            others; ``""``: ours, which does.
        cache: whether nginx is in front.
        shared: whether the queries of a process share one client.
        spark: whether the server gives its queries to Spark.
    """

    name: str
    engine: str = ""
    method: str = ""
    cache: bool = False
    shared: bool = False
    spark: bool = False


STREAMER = Mode("query streamer")
CACHED = Mode(f"query streamer{_BEHIND}", cache=True)
SHARED = Mode("query streamer, shared client", shared=True)
CQELS_MODE = Mode("CQELS mode", engine="cqels")
CSPARQL_MODE = Mode("C-SPARQL mode", engine="csparql")
SPARK_MODE = Mode("C-SPARQL mode on Spark", engine="csparql", spark=True)
PLACES = {
    mode.name: place
    for place, mode in enumerate((STREAMER, CACHED, SHARED, CQELS_MODE, CSPARQL_MODE, SPARK_MODE))
}
"""In the order of colours: a mode has the same one in all figures of all experiments."""
REWRITING = tuple(
    Mode(f"{method.name}{_BEHIND if cache else ''}", method=method.name, cache=cache)
    for method in METHODS
    for cache in (False, True)
)


def need_java() -> None:
    """See to it that Spark can run here.

    Raises:
        UnavailableError: there is no Java.
    """
    try:
        find_java(SparkSettings.from_environment(os.environ).java_home, os.environ)
    except SparkError as error:
        raise UnavailableError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a board, in seconds.

    Args:
        period: until all live facts are renewed.
        lead: by which a renewal is published before the old facts expire.
        jitter: over which clients spread their evaluations.
        step: between two evaluations of a C-SPARQL query.
    """

    period: float
    lead: float
    jitter: float
    step: float


@dataclass(frozen=True, slots=True)
class Side:
    """The server's side of a measurement, and the orders for clients and feed."""

    server: Server
    cache: Process | None
    order: Mapping[str, Any]
    queries: Sequence[str]
    feed: Mapping[str, Any]


@contextmanager
def side(
    mode: Mode,
    windows: Sequence[DepartureWindow],
    board: Board,
    store: Path,
    folder: Path,
    times: Times,
) -> Iterator[Side]:
    """The server of a mode, new, with a cache in front where the mode has one.

    Args:
        mode: the mode.
        windows: the queries.
        board: the departures.
        store: their static facts.
        folder: where the server may keep files.
        times: the board's.

    Raises:
        UnavailableError: a program is missing here.
        ProcessFailedError: a server does not start.
    """
    front = free_port() if mode.cache else None
    base = f"http://{LOOPBACK}:{front}/" if front else ""
    with ExitStack() as stack:
        config = _configuration(mode, store, len(windows))
        server = stack.enter_context(fragment_server(folder, config, base_url=base))
        cache = None
        if front is not None:
            cache = stack.enter_context(http_cache(server.port, front, folder))
        feed = {
            "do": "start", "period": times.period, "lead": times.lead, "token": TOKEN,
            "departures": board.departures,
        }  # fmt: skip
        order: dict[str, Any] = {"do": "start", "shared": mode.shared, "whole": False}
        if mode.engine:
            stream = f"{server.url}{_STREAM}"
            feed |= {"mode": "stream", "url": stream}
            order |= {"mode": "stream", "url": server.url, "token": TOKEN}
            order["whole"] = mode.engine == "csparql"
            # Spark starts with the first query, which is followed long before it has answers.
            order["answered"] = mode.spark
            queries = [_query(mode, w, stream, times, number) for number, w in enumerate(windows)]
        else:
            # What is published goes past the cache.
            feed |= {"mode": "facts", "url": f"{server.url}{BOARD_DATASET}"}
            order |= {"mode": "facts", "url": f"{base or server.url}{BOARD_DATASET}"}
            order["jitter"] = times.jitter
            queries = [window.query() for window in windows]
        yield Side(server, cache, order, queries, feed)


def _query(mode: Mode, window: DepartureWindow, stream: str, times: Times, number: int) -> str:
    period = int(1000 * times.period)
    if mode.engine == "csparql":
        return window.csparql_query(stream, period, int(1000 * times.step), number)
    # Less than a period, so that a renewal never meets the one before it.
    return window.cqels_query(stream, period // 2)


def engine_settings(mode: Mode, queries: int) -> str:
    """The lines of a server's configuration that let so many queries be followed from one machine.

    None where the mode has no engine.
    """
    if not mode.engine:
        return ""
    engine = 'csparql_engine = "spark"\n' if mode.spark else ""
    return f"continuous = true\nfollowers = {queries + 16}\nfollowers_per_address = 0\n{engine}"


def _configuration(mode: Mode, store: Path, queries: int) -> str:
    return (
        f'{engine_settings(mode, queries)}[datasets.{BOARD_DATASET}]\nsource = "{store}"\n'
        f'annotation = "{mode.method or "plain"}"\n'
        f"page_labels = {'false' if mode.method else 'true'}\nmax_age = 3600.0\n"
    )
