"""Follows a query on a manual clock; CPython and Python for the browser run this same program.

The server's clock is moved over HTTP, so that both stand at the same instant.
"""

import gc
import json
import sys
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

from annotations.clock import ManualClock
from annotations.instants import format_instant, parse_instant
from tpf_client.async_client import AsyncClient, answered_async
from tpf_client.errors import QueryError
from tpf_client.streaming.streamer import Tick


async def follow(url: str, query: str, start: str, until: str, *, brief: bool = False) -> str:
    """Return the updates until an instant, or (`brief`) what was kept after each of them, as JSON.

    Args:
        url: of the dataset; its clock is moved by ``/advance/INSTANT`` of the same origin.
        query: SPARQL.
        start: the instant at which the server's clock stands.
        until: when to end.
        brief: return blocks of memory after each update in place of the update.
    """
    clock = ManualClock(parse_instant(start))
    origin = "/".join(url.split("/")[:3])
    updates: list[Any] = []
    async with AsyncClient(url, clock=clock) as client:
        try:
            stream = client.stream(query, until=parse_instant(until), static_recheck=None)
            streamer = stream.streamer
            looks: AsyncGenerator[Tick | datetime] = answered_async(
                streamer.steps(), streamer.driver
            )
            async for step in looks:
                if isinstance(step, datetime):
                    await _get(f"{origin}/advance/{format_instant(step)}")
                    clock.advance_to(step)
                    continue
                update = stream.update(step)
                assert update.error is None, update.error
                if brief:
                    gc.collect()
                    updates.append((len(update.added), sys.getallocatedblocks()))
                else:
                    updates.append(update.to_json())
        except QueryError:
            # Random texts may BIND what EXISTS would substitute.
            updates.clear()
    return json.dumps(updates)


async def _get(url: str) -> None:
    if sys.platform == "emscripten":
        from js import fetch

        assert (await fetch(url)).ok
        return
    import asyncio
    from urllib.request import urlopen

    await asyncio.to_thread(lambda: urlopen(url).close())
