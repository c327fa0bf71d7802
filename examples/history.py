"""Facts with intervals keep their history: what was said of 10:00, and what of 10:10?

usage: TPF_PUBLISH_TOKEN=… python history.py [URL of a dataset with `accept_past = true`]
"""

import os
import sys
from datetime import UTC, datetime, timedelta

from rdflib import URIRef

from tpf_client import Client, publish

TRAIN = URIRef("http://example.org/departures/IC1828")
PLATFORM = URIRef("http://example.org/train#platform")
TEN = datetime(2015, 12, 8, 10, tzinfo=UTC)


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:3000/trains"
    token = os.environ["TPF_PUBLISH_TOKEN"]
    change = TEN + timedelta(minutes=5)
    publish(url, [(TRAIN, PLATFORM, "8")], valid=(TEN, change), token=token)
    end = change + timedelta(minutes=15)
    publish(url, [(TRAIN, PLATFORM, "11")], valid=(change, end), token=token)
    with Client(url) as client:
        for instant in (TEN, TEN + timedelta(minutes=10)):
            query, bindings = "SELECT ?p { ?train ?is ?p }", {"train": TRAIN, "is": PLATFORM}
            rows = client.select(query, bindings, at=instant)
            print(f"at {instant:%H:%M} from platform", *(row["p"] for row in rows))


if __name__ == "__main__":
    main()
