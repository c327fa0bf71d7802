"""Ask once: which trains are there, and how late are they?

usage: python query.py [URL of the dataset]
"""

import sys

from tpf_client import Client

QUERY = """
PREFIX t: <http://example.org/train#>
SELECT ?headSign ?delay
WHERE { ?train t:headSign ?headSign OPTIONAL { ?train t:delay ?delay } }
ORDER BY ?headSign
"""


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:3000/trains"
    with Client(url) as client:
        for row in client.query(QUERY):
            print(row["headSign"], row.get("delay", "unknown"))


if __name__ == "__main__":
    main()
