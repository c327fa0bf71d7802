import gzip
import json
import os
import re
import sys
from pathlib import Path

import pyoxigraph as ox
import pytest

from annotations.terms import QuadPattern, Variable
from annotations.wording import how_to_install
from loaders.rdf.build import load_rdf_spark
from loaders.sources.base import SMALL, size_of
from tests.loaders.recordings import entry, write_directory, write_flights
from tpf_client import commands
from tpf_server.spark.java import SparkSettingError
from tpf_server.spark.session import SparkSettings
from tpf_server.store.static.columnar import open_store

PROJECT = Path(__file__).parents[2]
ANY = QuadPattern(*map(Variable, ("?s", "?p", "?o", "?g")))


def run(command: str, *arguments: object) -> int:
    """Run a command as its entry point does; its exit status."""
    return commands.run(f"tpf-{command}", list(map(str, arguments)))


@pytest.fixture
def day(tmp_path: Path) -> Path:
    return write_directory(tmp_path / "day", {1417772214687: [entry("a")]})


def test_load_tells_what_it_wrote(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, day: Path
) -> None:
    output = tmp_path / "out"
    arguments = ["irail", day, "-o", output, "--engine", "local"]
    assert run("load", *arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert re.fullmatch(
        rf"5 triples, 11 terms, 5 predicates, \d\.\d MB in {re.escape(str(output))}", first
    )
    assert re.fullmatch(r"\d+\.\d s, engine: local", second)
    with open_store(output) as store:
        assert store.count(ANY) == 5
        assert store.prefixes["t"] == "http://example.org/train#"
    assert run("load", *arguments) == 1
    assert capsys.readouterr().err == (
        f"tpf-load: {output} is a store already; --replace writes it anew\n"
    )
    assert run("load", *arguments, "--replace", "--quiet") == 0
    assert capsys.readouterr().err == ""
    # As files.
    output = tmp_path / "files"
    arguments = ["irail", day, "-o", output, "--engine", "local", "--format", "ntriples"]
    assert run("load", *arguments) == 0
    assert capsys.readouterr().err.startswith(f"5 triples in 1 file in {output}\n")
    assert run("load", *arguments) == 1
    assert capsys.readouterr().err == (
        f"tpf-load: {output} exists already; --replace writes it anew\n"
    )


def test_load_of_a_span_of_flights(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = ["2013-06-01,600,1,UA,1,EWR,IAH", "2013-06-02,600,1,UA,2,EWR,IAH"]
    path = write_flights(tmp_path / "flights", rows)
    arguments = ["--from", "2013-06-02T00:00:00-04:00", "--engine", "local", "--quiet"]
    arguments += ["--format", "ntriples"]
    assert run("load", "flights", path, "-o", tmp_path / "out", *arguments) == 0
    assert capsys.readouterr().err == ""
    text = (tmp_path / "out" / "part-00000.nt").read_text()
    assert "UA2>" in text
    assert "UA1>" not in text


@pytest.mark.parametrize("span", [("0001-01-01", "0001-01-02"), ("9999-12-30", "9999-12-31")])
def test_a_replay_of_the_first_or_the_last_day(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, span: tuple[str, str]
) -> None:
    path = write_flights(tmp_path / "flights", ["2013-06-01,600,1,UA,1,EWR,IAH"])
    start, until = (f"{day}T00:00:00Z" for day in span)
    arguments = [path, "http://127.0.0.1:9/d", "--from", start, "--until", until]
    assert run("replay", "flights", *arguments) == 2
    assert "nothing between --from and --until" in capsys.readouterr().err


def test_rdf_files_and_what_is_malformed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "data.nt"
    file.write_text("<http://e/s> <http://e/p> 'x' .\n<http://e/s> <http://e/p> \"x\" .\n")
    output = tmp_path / "store"
    arguments = ["rdf", tmp_path / "*.nt", "-o", output, "--engine", "local"]
    assert run("load", *arguments) == 0
    shown, count, summary, _ = capsys.readouterr().err.splitlines()
    assert shown.startswith(f"{file}, line 1: ")
    assert shown.endswith(": <http://e/s> <http://e/p> 'x' .")
    assert count == f"1 malformed, left out; all of them in {tmp_path / 'store.rejects'}"
    assert summary.startswith("1 triple, 3 terms, 1 predicate, ")
    (reject,) = (tmp_path / "store.rejects" / "rejects.ndjson").read_text().splitlines()
    assert json.loads(reject)["line"] == 1
    assert run("load", *arguments, "--replace", "--strict") == 1
    assert capsys.readouterr().err.startswith(f"tpf-load: {file}, line 1: ")
    with open_store(output) as store:
        assert store.count(ANY) == 1
    # A load without rejects leaves none of an earlier one.
    file.write_text('<http://e/s> <http://e/p> "y" .\n')
    assert run("load", *arguments, "--replace") == 0
    assert not (tmp_path / "store.rejects" / "rejects.ndjson").exists()


def test_settings_of_spark_come_from_the_environment() -> None:
    environment = {"TPF_SPARK_MASTER": "local[3]", "TPF_SPARK_MEMORY": "3g", "HOME": "/"}
    settings = SparkSettings.from_environment(environment, memory="4g", master=None)
    assert settings == SparkSettings(master="local[3]", memory="4g")
    with pytest.raises(SparkSettingError, match="TPF_SPARK_CORES is no setting"):
        SparkSettings.from_environment({"TPF_SPARK_CORES": "2"})


def test_dynamic_facts_and_streams_as_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, day: Path
) -> None:
    facts, streams = tmp_path / "facts.nq", tmp_path / "streams"
    arguments = ["irail", day, "--facts", facts, "--method", "rdf-1.2", "--streams", streams]
    arguments += ["--dataset", "http://h/trains"]
    assert run("load", *arguments) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"2 facts, annotated by rdf-1.2, in {facts}",
        f"2 triples of streams in {streams}",
    ]
    assert "<http://h/trains/facts/reifier/" in facts.read_text()
    assert len((streams / "irail.tsv").read_text().splitlines()) == 2
    parts = tmp_path / "parts"
    for _ in range(2):  # parts are replaced
        assert (
            run("load", "irail", day, "--facts", f"{parts}/", *arguments[4:6], *arguments[8:]) == 0
        )
        assert [each.read_text() for each in parts.iterdir()] == [facts.read_text()]
    (parts / "else").touch()
    assert run("load", "irail", day, "--facts", f"{parts}/") == 1
    assert f"{parts} exists already, with other files" in capsys.readouterr().err
    arguments += ["--from", "2020-01-01T00:00:00Z", "--quiet"]
    assert run("load", *arguments) == 0
    assert facts.read_text() == ""


@pytest.mark.parametrize("has_java", [False, True])
def test_without_spark_one_process_does_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, day: Path,
    has_java: bool,
) -> None:  # fmt: skip
    home = tmp_path / "java"
    missing = f"no Java in {home} (there is no bin/java that runs)"
    if has_java:
        (home / "bin").mkdir(parents=True)
        (home / "bin/java").write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
        (home / "bin/java").chmod(0o755)
        monkeypatch.setitem(sys.modules, "pyspark", None)
        missing = f"PySpark is not installed: {how_to_install('spark')}"
    monkeypatch.setenv("TPF_SPARK_JAVA_HOME", str(home))
    monkeypatch.setattr("loaders.commands.options.SMALL", 0)
    assert run("load", "irail", day, "-o", tmp_path / "out") == 0
    first, _, third = capsys.readouterr().err.splitlines()
    assert first == f"tpf-load: without Spark: {missing}"
    assert third.endswith("engine: local")
    assert run("load", "irail", day, "-o", tmp_path / "other", "--engine", "spark") == 1
    assert capsys.readouterr().err == f"tpf-load: {missing}; or use --engine local\n"
    assert not (tmp_path / "other").exists()


def test_small_inputs_are_loaded_without_looking_for_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, day: Path
) -> None:
    monkeypatch.setenv("TPF_SPARK_JAVA_HOME", str(tmp_path / "absent"))
    (tmp_path / "a.nt.gz").write_bytes(gzip.compress(b'<http://e/s> <http://e/p> "a" .\n'))
    size = size_of([tmp_path / "a.nt.gz"])
    for small, lines in ((size, 2), (size - 1, 3)):
        monkeypatch.setattr("loaders.commands.options.SMALL", small)
        out = tmp_path / "store"
        assert run("load", "rdf", tmp_path / "a.nt.gz", "-o", out, "--replace") == 0
        assert len(capsys.readouterr().err.splitlines()) == lines
    assert f"{SMALL >> 20} MB" in (PROJECT / "docs" / "loading.md").read_text("utf-8")


@pytest.mark.parametrize("form", ["store", "ntriples"])
def test_facts_in_named_graphs(tmp_path: Path, form: str) -> None:
    (tmp_path / "city" / "static").mkdir(parents=True)
    (tmp_path / "city" / "streams").mkdir()
    (tmp_path / "city" / "streams" / "AarhusWeatherData0.csv").write_text("TIMESTAMP,tempm\n")
    for name in ("SensorRepository", "AarhusLibraryEvents"):
        (tmp_path / "city" / "static" / f"{name}.n3").write_text("<http://e/s> a <http://e/o> .")
    output = tmp_path / "out"
    arguments = ["citybench", tmp_path / "city", "-o", output, "--engine", "local"]
    assert run("load", *arguments, "--format", form) == 0
    if form == "ntriples":
        (file,) = output.iterdir()
        assert file.name == "part-00000.nq"
        assert len(list(ox.parse(path=file))) == 2
    else:
        with open_store(output) as store:
            assert store.count(ANY) == 2


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        *(
            (f"{scheme}://a.example/out", options, f"nothing is written to {scheme}://")
            for scheme, options in zip(
                ("http", "https", "ftp", "svn+ssh", "git+https"),
                (
                    ["irail", "-o"],
                    ["irail", "--format", "ntriples", "-o"],
                    ["irail", "--facts"],
                    ["irail", "--streams"],
                    ["rdf", "-o"],
                ),
                strict=True,
            )
        ),
        *(
            (url, ["irail", "--format", "ntriples", "-o"], "files of N-Triples go to a directory")
            for url in ("s3://a/out", "webhdfs://a.example/out")
        ),
    ],
)
def test_nothing_is_written_to_such_a_url(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    day: Path,
    url: str,
    options: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.nt").write_text("<urn:a> <urn:b> <urn:c> .")
    name, *more = options
    given = tmp_path / "a.nt" if name == "rdf" else day
    before = sorted(tmp_path.rglob("*"))
    assert run("load", name, given, *more, url, "--engine", "local") == 1
    assert capsys.readouterr().err.startswith(f"tpf-load: {url}: {said}")
    # In particular to no path that is called like it.
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("scheme", "form"), [("file", "store"), ("FILE", "ntriples")])
def test_a_file_url_is_a_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, day: Path, scheme: str, form: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    output = tmp_path / "out"
    words = ["irail", f"{scheme}://{day}", "-o", f"{scheme}://{output}", "--format", form]
    assert run("load", *words, "--engine", "local") == 0
    assert any(output.iterdir())
    assert not any(elsewhere.iterdir())


@pytest.mark.parametrize("content", ["", "# nothing yet\n"])
def test_an_input_without_triples_is_worth_a_warning(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    (tmp_path / "empty.ttl").write_text(content)
    arguments = ["rdf", tmp_path / "empty.ttl", "-o", tmp_path / "out", "--engine", "local"]
    assert run("load", *arguments) == 0
    warning, done, *_ = capsys.readouterr().err.splitlines()
    assert warning == "warning: there are no triples in the input, so the store is empty"
    assert done.startswith("0 triples")


def test_a_name_that_is_no_utf8(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"\xff.nt")
    file.write_text('bad\n<http://e/s> <http://e/p> "x" .\n')
    assert run("load", "rdf", file, "-o", tmp_path / "store", "--engine", "local") == 0
    assert "1 malformed, left out" in capsys.readouterr().err
    (line,) = (tmp_path / "store.rejects" / "rejects.ndjson").read_text().splitlines()
    assert json.loads(line)["path"] == str(file)


@pytest.mark.parametrize("small", [True, False])
def test_nothing_but_malformed_lines_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, small: bool
) -> None:
    if not small:
        # The way of Spark, in this process.
        monkeypatch.setattr(
            "loaders.commands.load_sources.load_rdf_local",
            lambda files, store, job, *, entail, report: load_rdf_spark(files, store, None, job),
        )
    (tmp_path / "a.nt").write_text("nothing\nof it\n")
    arguments = ["rdf", tmp_path / "a.nt", "-o", tmp_path / "store", "--engine", "local"]
    assert run("load", *arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path / 'a.nt'}, line 1: nothing but 2 malformed parts" in line
    assert not (tmp_path / "store").exists()
    assert len((tmp_path / "store.rejects" / "rejects.ndjson").read_text().splitlines()) == 2
