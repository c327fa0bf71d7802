import re
import sys
from pathlib import Path

import pytest

from loaders import cli
from loaders.errors import SettingError
from loaders.session import SparkSettings
from tests.loaders.recordings import entry, write_directory, write_flights


def run(monkeypatch: pytest.MonkeyPatch, command: str, *arguments: object) -> int:
    """Run a command as its entry point does; its exit status."""
    monkeypatch.setattr(sys, "argv", [f"tpf-{command}", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        getattr(cli, command)()
    return int(ended.value.code or 0)


@pytest.fixture
def day(tmp_path: Path) -> Path:
    return write_directory(tmp_path / "day", {1417772214687: [entry("a")]})


def test_load_tells_what_it_wrote(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, day: Path
) -> None:
    output = tmp_path / "out"
    assert run(monkeypatch, "load", "irail", day, "-o", output, "--engine", "local") == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"5 triples in 1 file in {output} (engine: local)\n"
    assert run(monkeypatch, "load", "irail", day, "-o", output, "--engine", "local") == 1
    assert capsys.readouterr().err == (
        f"tpf-load: {output} exists already; --replace writes it anew\n"
    )


def test_load_of_a_span_of_flights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = ["2013-06-01,600,1,UA,1,EWR,IAH", "2013-06-02,600,1,UA,2,EWR,IAH"]
    path = write_flights(tmp_path / "flights", rows)
    arguments = ["--from", "2013-06-02T00:00:00-04:00", "--engine", "local", "--quiet"]
    assert run(monkeypatch, "load", "flights", path, "-o", tmp_path / "out", *arguments) == 0
    assert capsys.readouterr().err == ""
    text = (tmp_path / "out" / "part-00000.nt").read_text()
    assert "UA2>" in text
    assert "UA1>" not in text


def test_without_java_one_process_does_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, day: Path
) -> None:
    monkeypatch.setenv("TPF_SPARK_JAVA_HOME", str(tmp_path / "absent"))
    assert run(monkeypatch, "load", "irail", day, "-o", tmp_path / "out") == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"tpf-load: without Spark: no Java in {tmp_path / 'absent'}")
    assert second.endswith("(engine: local)")
    arguments = ["-o", tmp_path / "other", "--engine", "spark"]
    assert run(monkeypatch, "load", "irail", day, *arguments) == 1
    assert re.fullmatch(r"tpf-load: no Java in .*\n", capsys.readouterr().err)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["irail", "absent.zip", "-o", "out"], 1, "tpf-load: absent.zip: No such file"),
        (["irail", "absent.zip"], 2, "Missing option"),
        (["irail", "a", "-o", "out", "--from", "2014-12-05"], 2, "not an xsd:dateTime"),
        (["irail", "a", "-o", "out", "--from", "2014-12-05T00:00:00"], 2, "needs a time zone"),
        (["trams", "a"], 2, "No such command"),
        (["flights", "absent", "-o", "out"], 1, "airlines.csv: no such file"),
    ],
)
def test_wrong_use_of_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    arguments: list[str], status: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "load", *arguments) == status
    assert message in " ".join(re.sub("[│╭╰─╮╯]", " ", capsys.readouterr().err).split())


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["irail", "{day}", "trains"], 2, "not the URL of a dataset"),
        (["irail", "{day}", "http://127.0.0.1:9/t", "--speed", "0"], 2, "speed of a replay"),
        (["irail", "{day}", "http://127.0.0.1:9/t", "--lead", "-1"], 2, "--lead"),
        (["irail", "{day}", "http://h/t", "--from", "2030-01-01T00:00:00Z"], 2, "nothing between"),
        (["irail", "absent", "http://127.0.0.1:9/t"], 1, "absent: No such file"),
        (["flights"], 2, "Missing argument"),
        (["flights", "a", "b", "http://h/"], 2, "at most one INPUT"),
    ],
)
def test_wrong_use_of_replay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, day: Path,
    arguments: list[str], status: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    given = [argument.format(day=day) for argument in arguments]
    assert run(monkeypatch, "replay", *given) == status
    assert message in " ".join(re.sub("[│╭╰─╮╯]", " ", capsys.readouterr().err).split())


def test_settings_of_spark_come_from_the_environment() -> None:
    environment = {"TPF_SPARK_MASTER": "local[3]", "TPF_SPARK_MEMORY": "3g", "HOME": "/"}
    settings = SparkSettings.from_environment(environment, memory="4g", master=None)
    assert settings == SparkSettings(master="local[3]", memory="4g")
    with pytest.raises(SettingError, match="TPF_SPARK_CORES is no setting"):
        SparkSettings.from_environment({"TPF_SPARK_CORES": "2"})
