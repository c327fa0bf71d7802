"""Watch an answer: every update says what came, what went, and until when it holds.

usage: python watch.py [URL of the dataset] [updates]
"""

import sys
from itertools import islice

from tpf_client import Client

QUERY = """
PREFIX t: <http://example.org/train#>
SELECT ?headSign ?delay WHERE { ?train t:headSign ?headSign ; t:delay ?delay }
"""


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:3000/trains"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else None
    with Client(url) as client:
        for update in islice(client.stream(QUERY), count):
            if update.error is not None:  # it is tried again by itself
                print("failed:", update.error)
            for row in update.removed:
                print("-", row["headSign"], row["delay"])
            for row in update.added:
                print("+", row["headSign"], row["delay"], "until", row.valid_until)


if __name__ == "__main__":
    main()
