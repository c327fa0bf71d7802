"""The log of a Spark that has no folder of its own."""

import os
import tempfile
from pathlib import Path

import pytest

from tpf_server.spark.session import SparkSettings, _log_path


def test_nobody_else_can_take_its_name_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"tpf-spark-{os.getpid()}.log").symlink_to(tmp_path / "precious")
    log = _log_path(SparkSettings())
    assert log.parent == tmp_path
    assert (log.is_symlink(), log.stat().st_mode & 0o777, log.suffix) == (False, 0o600, ".log")
