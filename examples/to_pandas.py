"""An answer as a pandas data frame: values are numbers, not text.

usage: python to_pandas.py [URL of the dataset]        (needs: pip install ".[pandas]")
"""

import sys

from tpf_client import Client

QUERY = """
PREFIX t: <http://example.org/train#>
SELECT ?headSign ?delay WHERE { ?train t:headSign ?headSign ; t:delay ?delay }
"""


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:3000/trains"
    with Client(url) as client:
        frame = client.select(QUERY).to_pandas()
    print(frame.sort_values("headSign").to_string(index=False))
    print("mean delay:", frame["delay"].mean())


if __name__ == "__main__":
    main()
