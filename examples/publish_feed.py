"""Publish a feed: the delays of three trains, each true for ten seconds, renewed before they end.

usage: TPF_PUBLISH_TOKEN=… python publish_feed.py [URL of the dataset] [rounds]
"""

import os
import random
import sys
from time import sleep

from rdflib import Namespace

from tpf_client import publish

HOLDS, RENEW = 10.0, 8.0
TRAINS = ("IC1828", "IC528", "S51")
DEPARTURES = Namespace("http://example.org/departures/")
TRAIN = Namespace("http://example.org/train#")


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:3000/trains"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    delays = dict.fromkeys(TRAINS, 0)
    for number in range(rounds):
        if number:
            sleep(RENEW)
        delays[random.choice(TRAINS)] += 60
        # One batch: readers see all of it, or nothing.
        facts = [(DEPARTURES[train], TRAIN.delay, delay) for train, delay in delays.items()]
        token = os.environ["TPF_PUBLISH_TOKEN"]
        answer = publish(url, facts, expires_in=HOLDS, token=token)
        print(f"batch {answer['sequence']}: {delays}")


if __name__ == "__main__":
    main()
