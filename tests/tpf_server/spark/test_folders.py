"""Folders that the driver shares with Spark."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tpf_server.spark.folders import Folder, LocalFolder, folder_of
from tpf_server.spark.java import SparkError


def broken(lines: int) -> Iterator[str]:
    """A text that nobody can tell to its end."""
    for number in range(lines):
        yield f"line {number} of what is longer than the buffers of those who write it\n"
    raise RuntimeError("broken")


def check_that_nothing_is_left(folder: Folder, path: Path, process: int) -> None:
    """Check that a failed write leaves no file, or the old one."""
    path.mkdir(exist_ok=True)
    for lines in (0, 50_000):
        with pytest.raises(RuntimeError, match="broken"):
            folder.write("new", broken(lines))
    folder.write("old", ["as it was"])
    with pytest.raises(RuntimeError, match="broken"):
        folder.write("old", broken(50_000))
    assert folder.read("old") == b"as it was"
    assert folder.names() == ["old"]
    assert [name for name in os.listdir(path) if ".new" in name] == []
    opened = [os.readlink(each) for each in Path(f"/proc/{process}/fd").iterdir() if each.exists()]
    assert [each for each in opened if str(path) in each] == []
    # Where it cannot be told: a folder has the name.
    (path / "taken").mkdir()
    with pytest.raises((OSError, SparkError)):
        folder.write("taken", ["text"])
    assert [name for name in os.listdir(path) if "taken" in name and name != "taken"] == []


def test_a_file_that_could_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    check_that_nothing_is_left(LocalFolder(tmp_path / "a"), tmp_path / "a", os.getpid())


@pytest.mark.spark
def test_so_it_is_at_a_url(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    folder = folder_of((tmp_path / "a").as_uri(), SparkSession(spark))
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    check_that_nothing_is_left(folder, tmp_path / "a", java)
