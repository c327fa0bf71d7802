from pathlib import Path

import pytest

from tpf_client import commands
from tpf_server.spark.java import JavaNotFoundError, SparkMissingError, class_archive, find_java


def make_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return home


def test_classes_without_pyspark_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpf_server.spark.java.find_spec", lambda _name: None)
    with pytest.raises(SparkMissingError, match="PySpark is not installed: "):
        class_archive(tmp_path, tmp_path)


def test_java_home_counts_before_the_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1")
    other = make_java(tmp_path / "other", "17.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(None, environment, ()) == home


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_402")
    new = make_java(tmp_path / "jvm" / "new", "17.0.9")
    assert find_java(None, {"JAVA_HOME": str(old)}, (str(tmp_path / "jvm" / "*"),)) == new


def test_the_path_is_searched(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "17")
    assert find_java(None, {"PATH": str(home / "bin")}, ()) == home


def test_no_java_is_explained_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"^no Java found: .*Java 17 or later[^\n]*$"):
        find_java(None, {"PATH": str(tmp_path)}, ())


def test_only_old_ones_are_named(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFoundError, match=f"found only Java 11 in {old}"):
        find_java(None, {"JAVA_HOME": str(old), "PATH": ""}, ())


def test_a_java_that_is_set_is_the_only_one(tmp_path: Path) -> None:
    good = make_java(tmp_path / "good", "17")
    with pytest.raises(JavaNotFoundError, match="no bin/java"):
        find_java(str(tmp_path / "absent"), {"JAVA_HOME": str(good)}, ())
    old = make_java(tmp_path / "old", "11")
    with pytest.raises(JavaNotFoundError, match="Java 11"):
        find_java(str(old), {"JAVA_HOME": str(good)}, ())


def test_a_command_says_so_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of continuous queries is tested with its service."""
    pytest.importorskip("pyspark")
    monkeypatch.setenv("TPF_SPARK_JAVA_HOME", str(tmp_path / "none"))
    file = tmp_path / "a.nt"
    file.write_text('<http://e/a> <http://e/p> "x" .\n')
    words = ["rdf", str(file), "-o", str(tmp_path / "store"), "--engine", "spark"]
    assert commands.run("tpf-load", words) == 1
    assert capsys.readouterr().err == (
        f"tpf-load: no Java in {tmp_path / 'none'} (there is no bin/java that runs); "
        "or use --engine local\n"
    )
