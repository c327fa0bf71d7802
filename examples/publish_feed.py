"""Publish a feed: the delays of three trains, each true for ten seconds, renewed before they end.

usage: TPF_PUBLISH_TOKEN=… python publish_feed.py [URL of the dataset] [rounds]
"""

import os
import random
import sys
from datetime import UTC, datetime, timedelta
from time import sleep

import requests

HOLDS, RENEW = timedelta(seconds=10), 8.0
TRAINS = ("IC1828", "IC528", "S51")


def publish(url: str, token: str, delays: dict[str, int]) -> None:
    """Publish one batch: readers see all of it, or nothing."""
    body = "".join(
        f"<http://example.org/departures/{train}> <http://example.org/train#delay> "
        f'"{delay}"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
        for train, delay in delays.items()
    )
    answer = requests.post(
        f"{url}/facts",
        params={"expiration": (datetime.now(UTC) + HOLDS).isoformat()},
        data=body,
        headers={"Content-Type": "application/n-triples", "Authorization": f"Bearer {token}"},
        timeout=10,
    )
    answer.raise_for_status()
    print(f"batch {answer.json()['sequence']}: {delays}")


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:3000/trains"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    delays = dict.fromkeys(TRAINS, 0)
    for number in range(rounds):
        if number:
            sleep(RENEW)
        delays[random.choice(TRAINS)] += 60
        publish(url, os.environ["TPF_PUBLISH_TOKEN"], delays)


if __name__ == "__main__":
    main()
