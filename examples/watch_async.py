"""Watch two queries at once, with coroutines: one client, one connection pool, one cache.

usage: python watch_async.py [URL of the dataset] [updates of each]
"""

import asyncio
import sys

from tpf_client import AsyncClient

QUERIES = {
    "delays": "SELECT ?train ?delay { ?train <http://example.org/train#delay> ?delay }",
    "late": "SELECT (COUNT(*) AS ?n) "
    "{ ?train <http://example.org/train#delay> ?delay FILTER (?delay > 0) }",
}


async def watch(client: AsyncClient, name: str, count: int) -> None:
    async for update in client.stream(QUERIES[name]):
        print(f"{name}: {len(update.added)} added, {len(update.removed)} removed")
        count -= 1
        if not count:
            return


async def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:3000/trains"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    async with AsyncClient(url) as client:
        await asyncio.gather(*(watch(client, name, count) for name in QUERIES))


if __name__ == "__main__":
    asyncio.run(main())
