"""The client for coroutines: the same answers as the client that waits, and nothing left behind."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from annotations.terms import Quad, iri, literal
from tests.support.live_server import LiveServer
from tests.support.shelf import Shelf
from tpf_client import AsyncClient, Solutions
from tpf_client.errors import (
    ClosedError,
    QuerySyntaxError,
    SourceError,
    UnsupportedQueryError,
)

T = TypeVar("T")

DELAY = iri("http://example.org/train#delay")


def _run(
    server: LiveServer, work: Callable[[AsyncClient], Awaitable[T]], **options: Any
) -> tuple[T, AsyncClient]:
    """What work with a client gives, and the client, which is closed."""

    async def main() -> tuple[T, AsyncClient]:
        options.setdefault("clock", server.clock)
        async with AsyncClient(server.url, session=server.session(), **options) as client:
            return await asyncio.wait_for(work(client), 200), client

    return asyncio.run(main())


def _static(folder: Path, count: int, page_size: int = 5) -> LiveServer:
    quads = [Quad(iri(f"http://ex.org/{n}"), DELAY, literal(str(n))) for n in range(count)]
    most = {"max_page_size": page_size}
    return LiveServer(folder, quads, live=False, page_size=page_size, server=most)


def test_each_form_of_query_over_a_running_server(tmp_path: Path) -> None:
    quads = [Quad(iri(f"urn:s{n}"), iri("urn:p"), iri(f"urn:o{n % 3}")) for n in range(250)]

    async def ask(url: str) -> list[Any]:
        async with AsyncClient(url) as client:
            rows = [row async for row in client.query("SELECT * { ?s <urn:p> ?o . ?t <urn:p> ?o }"
                                                      " ORDER BY ?s LIMIT 5")]  # fmt: skip
            all_rows = await client.query("SELECT ?s { ?s <urn:p> <urn:o1> }")
            graph: Any = await client.query("CONSTRUCT { ?o <urn:q> ?s } { ?s <urn:p> ?o }")
            assert isinstance(all_rows, Solutions)
            return [
                [str(row["s"]) for row in rows],
                len(list(all_rows)),
                await client.query("ASK { <urn:s7> <urn:p> <urn:o1> }"),
                await client.query("ASK { <urn:s7> <urn:p> <urn:o2> }"),
                len(graph),
                (await client.words()).predicates,
            ]

    with Shelf(tmp_path) as shelf:
        url, _ = shelf.add(quads, live=False)
        found = asyncio.run(ask(url))
    assert found == [["urn:s0"] * 5, 83, True, False, 250, ("urn:p",)]


def test_the_first_rows_come_before_the_last_requests(tmp_path: Path) -> None:
    server = _static(tmp_path, 1_000, page_size=10)

    async def ask(client: AsyncClient) -> int:
        rows = 0
        async for _ in client.query(f"SELECT * {{ ?s {DELAY} ?o }}"):
            rows += 1
            if rows == 3:
                break
        return rows

    assert _run(server, ask, parallelism=2)[0] == 3
    server.close()
    assert len(server.log) < 20


def test_a_query_that_is_cancelled_sends_nothing_more(tmp_path: Path) -> None:
    server = _static(tmp_path, 1_000, page_size=5)

    async def ask(client: AsyncClient) -> int:
        reading = asyncio.ensure_future(client.query(f"SELECT * {{ ?s {DELAY} ?o }}")._whole())
        while len(server.log) < 5:
            await asyncio.sleep(0.001)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await asyncio.sleep(0.05)
        before = len(server.log)
        await asyncio.sleep(0.2)
        return len(server.log) - before

    assert _run(server, ask)[0] == 0
    server.close()
    assert len(server.log) < 100


def test_nothing_is_left_of_a_client_that_was_closed(tmp_path: Path) -> None:
    server = _static(tmp_path, 500, page_size=5)

    async def ask() -> None:
        before = asyncio.all_tasks()
        client = AsyncClient(server.url, session=server.session(), clock=server.clock)
        reading = asyncio.ensure_future(client.query(f"SELECT * {{ ?s {DELAY} ?o }}")._whole())
        while len(server.log) < 3:
            await asyncio.sleep(0.001)
        await client.aclose()
        with pytest.raises(ClosedError):
            await reading
        assert asyncio.all_tasks() == before

    asyncio.run(asyncio.wait_for(ask(), 60))
    server.close()
    for each in threading.enumerate():
        if each.name.startswith("tpf-http"):
            each.join(30)
            assert not each.is_alive()


def test_what_is_wrong_is_raised_where_one_waits(tmp_path: Path) -> None:
    server = _static(tmp_path, 1)

    async def ask(client: AsyncClient) -> None:
        with pytest.raises(QuerySyntaxError):
            client.query("SELECT")
        with pytest.raises(UnsupportedQueryError):
            client.stream("SELECT * { SERVICE ?s { ?s ?p ?o } }")
        with pytest.raises(TypeError):
            client.stream("ASK { ?s ?p ?o }", often=1)
        missing = AsyncClient(f"{server.url}-missing", session=server.session())
        async with missing:
            with pytest.raises(SourceError, match="404"):
                await missing.query("ASK { ?s ?p ?o }")

    _run(server, ask)
    server.close()


def test_others_go_on_while_rows_are_read(tmp_path: Path) -> None:
    turns: list[None] = []

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(None)

    async def read(client: AsyncClient) -> int:
        other, begun = asyncio.create_task(others()), 0
        async for _ in client.query("SELECT * { ?s ?p ?o . ?t ?q ?u }"):
            begun = begun or len(turns)
            time.sleep(0.001)
        other.cancel()
        return len(turns) - begun

    with _static(tmp_path, 15, page_size=20) as server:
        assert _run(server, read)[0] >= 3
