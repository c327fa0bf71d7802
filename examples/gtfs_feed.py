"""From a GTFS feed to a store that a server opens in milliseconds.

usage: python gtfs_feed.py [FEED.zip STORE]            (needs: pip install ".[server,loaders]")

Without arguments it makes a feed of one trip. `tpf-server STORE` serves the result.
"""

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from annotations.terms import QuadPattern
from tpf_server.store.static.columnar import open_store

TABLES = {
    "agency.txt": "agency_name,agency_url,agency_timezone\nLines,http://example.org/,Europe/Brussels",
    "stops.txt": "stop_id,stop_name\nG,Gent-Dampoort\nB,Brugge",
    "routes.txt": "route_id,route_short_name,route_type\nr,IC 1828,2",
    "trips.txt": "route_id,service_id,trip_id,trip_headsign\nr,daily,t,Brugge",
    "calendar.txt": "service_id,monday,tuesday,wednesday,thursday,friday,saturday,sunday,"
    "start_date,end_date\ndaily,1,1,1,1,1,1,1,20260105,20260111",
    "stop_times.txt": "trip_id,arrival_time,departure_time,stop_id,stop_sequence\n"
    "t,08:00:00,08:01:00,G,1\nt,08:30:00,08:30:00,B,2",
}


def make_feed(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as feed:
        for name, text in TABLES.items():
            feed.writestr(name, text + "\n")
    return path


def main() -> None:
    with TemporaryDirectory() as folder:
        if len(sys.argv) > 2:
            feed, store = Path(sys.argv[1]), Path(sys.argv[2])
        else:
            feed, store = make_feed(Path(folder, "feed.zip")), Path(folder, "departures.store")
        subprocess.run(["tpf-load", "gtfs", str(feed), "--output", str(store)], check=True)
        with open_store(store) as opened:
            time = "<http://example.org/train#departureTime>"
            print(opened.count(QuadPattern("?s", time, "?o", "?g")), "departures")


if __name__ == "__main__":
    main()
