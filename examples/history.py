"""Facts with intervals keep their history: what was said of 10:00, and what of 10:10?

usage: TPF_PUBLISH_TOKEN=… python history.py [URL of a dataset with `accept_past = true`]
"""

import os
import sys
from datetime import UTC, datetime, timedelta

import requests

from tpf_client import Client

PLATFORM = "<http://example.org/departures/IC1828> <http://example.org/train#platform>"
QUERY = f"SELECT ?p {{ {PLATFORM} ?p }}"
TEN = datetime(2015, 12, 8, 10, tzinfo=UTC)


def publish(url: str, platform: str, start: datetime, end: datetime) -> None:
    requests.post(
        f"{url}/facts",
        params={"initial": start.isoformat(), "final": end.isoformat()},
        data=f'{PLATFORM} "{platform}" .',
        headers={
            "Content-Type": "application/n-triples",
            "Authorization": f"Bearer {os.environ['TPF_PUBLISH_TOKEN']}",
        },
        timeout=10,
    ).raise_for_status()


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:3000/trains"
    change = TEN + timedelta(minutes=5)
    publish(url, "8", TEN, change)
    publish(url, "11", change, change + timedelta(minutes=15))
    with Client(url) as client:
        for instant in (TEN, TEN + timedelta(minutes=10)):
            rows = client.query(QUERY, at=instant)
            print(f"at {instant:%H:%M} from platform", *(row["p"] for row in rows))


if __name__ == "__main__":
    main()
