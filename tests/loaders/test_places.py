"""Sources at URLs give the same facts as files on a disk."""

import gc
import gzip
import json
import os
import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from annotations.methods import METHODS
from loaders import places
from loaders.distributed.facts import load_as_lines, write_facts_spark
from loaders.dynamic import naming_of
from loaders.errors import InputError
from loaders.places import RemotePlace, input_place
from loaders.progress import SILENT
from loaders.sources.gtfs import Gtfs
from loaders.sources.irail import Irail
from tests.loaders.recordings import entry, write_directory, write_flights, write_zip
from tests.loaders.sources import test_citybench, test_gtfs, test_tabular
from tests.loaders.sources.test_gtfs_rt import record
from tests.loaders.sources.test_ngsi_ld import NORMALISED, notification
from tests.loaders.sources.test_siri import ET
from tests.loaders.sources.test_taxi import EXAMPLE, LATER
from tests.support.file_servers import put, web
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.webhdfs import files_served
from tpf_client import commands
from tpf_server.store.static import file_systems, http_files
from tpf_server.store.static.file_systems import RemoteFolder, s3_system

FIRST = 1417772214687
POLLS = {FIRST: [entry("a"), entry("b", "60")], FIRST + 60_000: [entry("a", "120")]}
STATIC, FACTS = ("--output", "--format", "ntriples"), ("--facts",)


@dataclass(frozen=True)
class Load:
    """A load of an input below a directory.

    Args:
        words: its command; file names begin with ``@``.
        outputs: its output options.
        web: false if it needs a list of files.
    """

    words: str
    outputs: tuple[str, ...]
    web: bool = True


LOADS = (
    Load("irail @day.zip", STATIC),
    Load("irail @day.zip", FACTS),
    Load("irail @day", STATIC, web=False),
    Load("irail @day", FACTS, web=False),
    Load("flights @flights", STATIC),
    Load("flights @zipped", FACTS),
    Load("citybench @city", STATIC, web=False),
    Load("citybench @city", FACTS, web=False),
    Load("citybench @city", ("--streams",), web=False),
    Load("taxi @trips.csv", STATIC),
    Load("taxi @trips.csv.gz", FACTS),
    Load("gtfs @feed.zip", STATIC),
    Load("gtfs @feed", STATIC, web=False),
    Load("gtfs-rt @rt --schedule @feed.zip", FACTS, web=False),
    Load("siri @siri", FACTS, web=False),
    Load("ngsi-ld @ngsi/a.json --context @context.json", FACTS, web=False),
    Load("csv @csv/sensors-metadata.json", STATIC),
    Load("csv @csv/sensors-metadata.json @csv/sensors.csv", STATIC),
)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Something of every source."""
    root = tmp_path / "disk"
    root.mkdir()
    write_directory(root / "day", POLLS)
    write_zip(root / "day.zip", POLLS)
    rows = ["2013-06-01,600,61,UA,1,EWR,IAH", "2013-06-01,700,NA,AA,2,EWR,IAH"]
    write_flights(root / "flights", rows)
    table = write_flights(root / "zipped", rows) / "flights.csv"
    with zipfile.ZipFile(root / "zipped" / "flights.csv.zip", "w") as packed:
        packed.write(table, "flights.csv")
    table.unlink()
    (root / "trips.csv").write_text(EXAMPLE + LATER)
    (root / "trips.csv.gz").write_bytes(gzip.compress((EXAMPLE + LATER).encode()))
    feed = test_gtfs.write(root / "feed")
    with zipfile.ZipFile(root / "feed.zip", "w") as packed:
        for file in feed.iterdir():
            packed.write(file, file.name)
    record(root / "rt", {0: 0, 1: 60, 5: 60})
    (root / "siri").mkdir()
    (root / "siri" / "a.xml").write_bytes(ET)
    (root / "ngsi").mkdir()
    (root / "ngsi" / "a.json").write_text(json.dumps(notification(NORMALISED)))
    (root / "context.json").write_text('{"@context": {"speed": "http://e/speed"}}')
    test_tabular.write(root / "csv", test_tabular.MAPPING)
    (root / "city" / "static").mkdir(parents=True)
    (root / "city" / "streams").mkdir()
    (root / "city" / "static" / "SensorRepository.n3").write_text(test_citybench.REPOSITORY)
    for name, text in test_citybench.FILES.items():
        (root / "city" / "streams" / f"{name}.csv").write_text(text)
    return root


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    places._copy_of.cache_clear()
    yield
    places._copy_of.cache_clear()


def loaded(load: Load, root: str, target: Path, *more: str) -> dict[str, bytes]:
    """Return the output of a load."""
    words = [word.replace("@", f"{root}/", word.startswith("@")) for word in load.words.split()]
    option, *others = load.outputs
    assert commands.run("tpf-load", [*words, option, str(target), *others, "--quiet", *more]) == 0
    files = [target] if target.is_file() else sorted(target.iterdir())
    return {file.name if file != target else "": file.read_bytes() for file in files}


def test_every_source_is_read_from_urls_as_from_a_disk(
    disk: Path, remote: ObjectStore, tmp_path: Path
) -> None:
    root = put(disk, remote)
    with files_served(tmp_path) as hdfs, web(disk) as (url, _):
        for number, load in enumerate(LOADS):
            wanted = loaded(load, str(disk), tmp_path / f"{number}")
            assert any(wanted.values()), load
            urls = {"s3": root, "hdfs": f"{hdfs.url}/disk"} | ({"web": url} if load.web else {})
            for name, place in urls.items():
                assert loaded(load, place, tmp_path / f"{number}-{name}") == wanted, (load, place)


def test_facts_and_streams_go_to_urls(
    disk: Path, remote: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hdfs").mkdir()
    facts = loaded(LOADS[1], str(disk), tmp_path / "facts.nq")
    streams = loaded(LOADS[8], str(disk), tmp_path / "streams")
    with files_served(tmp_path / "hdfs") as hdfs:
        for root in (f"s3://{BUCKET}/out", f"{hdfs.url}/out"):
            there = RemoteFolder(root, remote.environment)
            for _ in range(2):
                words = ["irail", f"{disk}/day.zip", "--facts", f"{root}/facts.nq", "--quiet"]
                assert commands.run("tpf-load", words) == 0
                assert {"": there.read("facts.nq")} == facts
            parts = ["irail", f"{disk}/day.zip", "--facts", f"{root}/parts/", "--quiet"]
            assert commands.run("tpf-load", parts) == 0
            assert there.read("parts/part-00000.nq") == facts[""]
            assert there.read("parts/_SUCCESS") == b""
            # Parts of another load are not mixed with them.
            assert commands.run("tpf-load", parts) == 1
            assert "/parts/ is not empty: it has _SUCCESS" in capsys.readouterr().err
            words = ["citybench", f"{disk}/city", "--streams", f"{root}/a/b/", "--quiet"]
            assert commands.run("tpf-load", words) == 0
            assert {name: there.read(f"a/b/{name}") for name in streams} == streams
            assert there.folders().keys() == {"a", "parts"}
    # What cannot be written is one line.
    for url, said in (
        ("https://e/facts.nq", "https://e/facts.nq: nothing is written to https://"),
        (f"s3://{BUCKET}/facts.nq", f"s3://{BUCKET} is no folder in a bucket: s3://BUCKET/FOLDER"),
    ):
        assert commands.run("tpf-load", ["irail", f"{disk}/day.zip", "--facts", url]) == 1
        assert capsys.readouterr().err.splitlines()[-1] == f"tpf-load: {said}"
    remote.fails = lambda method, _path: method in ("PUT", "POST")
    words = ["irail", f"{disk}/day.zip", "--facts", f"s3://{BUCKET}/x/new.nq", "--quiet"]
    assert commands.run("tpf-load", words) == 1
    assert capsys.readouterr().err.startswith(f"tpf-load: s3://{BUCKET}/x/new.nq: ")
    remote.fails = lambda _method, _path: False
    with pytest.raises(FileNotFoundError):
        RemoteFolder(f"s3://{BUCKET}/x", remote.environment).read("new.nq")


@pytest.mark.spark
def test_workers_fetch_static_data(
    spark: Any, disk: Path, remote: ObjectStore, tmp_path: Path
) -> None:
    root = put(disk, remote)
    load_as_lines(Gtfs(disk / "feed.zip"), tmp_path / "one", None)
    load_as_lines(Gtfs(f"{root}/feed.zip"), tmp_path / "two", spark)
    texts = [
        sorted("".join(f.read_text() for f in (tmp_path / n).iterdir()).splitlines())
        for n in ("one", "two")
    ]
    assert texts[0] == texts[1] != []
    # What is not to be had is told as in one process.
    day = Irail(f"{root}/day")
    s3_system(remote.environment).delete_file(f"{BUCKET}/in/day/data/{FIRST}.dat")
    naming = naming_of("http://h/x")
    with pytest.raises(InputError, match=rf"^{root}/day/data/{FIRST}\.dat: does not exist$"):
        write_facts_spark(day, tmp_path / "x", METHODS[0], naming, spark, (None, None), SILENT)


def told(capsys: pytest.CaptureFixture[str], words: str, target: Path) -> str:
    """The line of a load that fails and writes nothing."""
    assert commands.run("tpf-load", [*words.split(), str(target), "--quiet"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tpf-load: ")
    assert not target.exists()
    return line.removeprefix("tpf-load: ")


def test_what_is_not_there_or_not_to_be_had_is_one_line(
    disk: Path,
    remote: ObjectStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_files, "_PAUSE", 0.001)
    root = put(disk, remote)

    def said(words: str) -> str:
        return told(capsys, words, tmp_path / "out")

    missing = (
        "irail {}/absent.zip --facts", "flights {}/absent -o", "citybench {}/absent --facts",
        "taxi {}/absent.csv --facts", "gtfs {}/absent.zip -o", "csv {}/absent.json -o",
        "gtfs-rt {}/absent --schedule {}/feed.zip --facts", "siri {}/absent --facts",
        "gtfs-rt {}/rt --schedule {}/absent.zip --facts",
    )  # fmt: skip
    for words in missing:
        line = said(words.format(root, root))
        assert line.startswith(f"{root}/absent"), words
        assert line.endswith(": does not exist"), words
    assert said(f"taxi {root} --facts") == f"{root}: no such file"
    assert said(f"flights {root}/city -o") == f"{root}/city/airlines.csv: no such file"
    assert said(f"irail {root}/trips.csv --facts") == (
        f"{root}/trips.csv: is neither a directory nor a zip file"
    )
    # Another table that the mapping names lies where the mapping lies, and nowhere else.
    for url in ("/etc/passwd", "../trips.csv", "a/../../trips.csv", "http://e/a.csv"):
        mapping = json.dumps(test_tabular.MAPPING | {"url": url})
        with s3_system(remote.environment).open_output_stream(f"{BUCKET}/in/csv/m.json") as out:
            out.write(mapping.encode())
        assert said(f"csv {root}/csv/m.json -o").startswith(f"{root}/csv/m.json: ")
    # The object store fails: at once, and with the first file that is read.
    monkeypatch.setattr(file_systems, "_ATTEMPTS", 2)
    places._opened.cache_clear()
    places._copy_of.cache_clear()
    remote.fails = lambda method, path: method == "GET" and path.endswith("/trips.csv")
    assert said(f"taxi {root}/trips.csv --facts").startswith(f"{root}/trips.csv: ")
    remote.fails = lambda _method, _path: True
    assert said(f"taxi {root}/trips.csv --facts").startswith(f"{root}/trips.csv: ")
    places._opened.cache_clear()
    with web(disk) as (url, files):
        for words in missing[3:6]:
            line = said(words.format(url))
            assert line.startswith(f"{url}/absent"), words
            assert line.endswith(": no such file"), words
        for words in (f"citybench {url}/city --facts", f"irail {url}/day.zip?x --facts"):
            files.failures = iter([500] * 5)
            line = said(words)
            assert line.startswith(words.split()[1].partition("?")[0]), line
            assert ": HTTP 500 " in line
        files.failures = iter([403])
        assert said(f"taxi {url}/trips.csv?signature=x --facts").startswith(
            f"{url}/trips.csv: HTTP 403 "
        )
        files.failures = iter(())
        line = said(f"citybench {url}/city --facts")
        assert line == f"{url}/city/streams: a web server does not list files"


def test_a_file_is_fetched_once_and_is_the_one_that_was_found(
    disk: Path, remote: ObjectStore
) -> None:
    root = put(disk, remote)
    before = deleted_files()
    found = input_place(f"{root}/trips.csv")
    assert isinstance(found, RemotePlace)
    elsewhere = pickle.loads(pickle.dumps(found))
    remote.requests.clear()
    for place in (found, elsewhere, found):
        with place.open(encoding="utf-8", newline="") as one, place.open("rb") as other:
            assert one.read().encode() == other.read() == (EXAMPLE + LATER).encode()
            assert other.seek(-5, os.SEEK_END) == len(EXAMPLE + LATER) - 5
            assert other.read() == LATER[-5:].encode()
    assert sum(method == "GET" for method, _ in remote.requests) == 1
    assert "something" not in repr(elsewhere)
    # In another process it may have been replaced meanwhile.
    places._copy_of.cache_clear()
    with s3_system(remote.environment).open_output_stream(f"{BUCKET}/in/trips.csv") as out:
        out.write(b"another")
    for read in (elsewhere.open, elsewhere.read_bytes):
        with pytest.raises(InputError, match=r"^s3:.*/trips\.csv: it has changed while it was "):
            read()
    del place, one, other
    gc.collect()
    assert deleted_files() == before


def test_an_empty_file_at_a_url_is_empty(remote: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    place = input_place(f"{put(tmp_path, remote)}/x")
    with place.open("rb") as empty, place.open(encoding="utf-8") as text:
        assert (empty.read(), text.read(), place.read_bytes()) == (b"", "", b"")


def deleted_files() -> int:
    """Count the deleted files that this process has open."""

    def target(descriptor: str) -> str:
        try:
            return os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            return ""

    return sum(target(each).endswith(" (deleted)") for each in os.listdir("/proc/self/fd"))
