"""A load that is killed in the middle, and started again."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loaders.rdf.build import load_rdf_spark
from tests.support.eventually import eventually
from tests.support.small_pieces import PIECE_BYTES, SIZES
from tpf_client import commands
from tpf_server.store.static.indexing import index_files
from tpf_server.store.static.manifest import read_manifest

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java")]


def test_a_killed_load_leaves_the_old_store_and_is_done_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    source = tmp_path / "data.nt"
    source.write_text('<http://e/old> <http://e/p> "old" .\n')
    store = tmp_path / "store"
    old = index_files([source], store, created=created)
    with source.open("w") as file:
        for n in range(60_000):
            file.write(f'<http://e/s{n % 6_007}> <http://e/p{n % 7}> "value {n % 30_011}" .\n')
    assert source.stat().st_size > PIECE_BYTES
    wanted = index_files([source], tmp_path / "reference", created=created)
    words = ["rdf", str(source), "-o", str(store), "--replace", "--engine", "spark", "--quiet"]
    locked = tmp_path / ".store.loading"
    work = tmp_path / "spark"
    load = subprocess.Popen(
        [
            sys.executable, "-m", "tests.support.small_pieces", "tpf-load", *words,
            "--master", "local[2]",
        ],
        cwd=PROJECT, env=os.environ | {"TPF_SPARK_LOCAL_DIR": str(work)}, start_new_session=True,
    )  # fmt: skip
    eventually(lambda: list(work.rglob("rdd_*")), load)  # the terms and rows of a piece
    # The driver alone: its Java and its workers notice that it is gone.
    os.kill(load.pid, signal.SIGKILL)
    load.wait()
    assert read_manifest(store) == old
    assert locked.exists()
    # With the Spark of all tests.
    shared = nullcontext(spark)
    monkeypatch.setattr("loaders.commands.options.spark_context", lambda *_, **__: shared)
    build: Any = load_rdf_spark
    monkeypatch.setitem(build.__kwdefaults__, "sizes", SIZES)
    assert commands.run("tpf-load", words) == 0
    assert read_manifest(store).version == wanted.version
    assert not locked.exists()


def test_an_interrupted_load_ends_at_once_and_says_so(tmp_path: Path) -> None:
    # One core: when the terms of the first file are there, the second one is being read.
    (tmp_path / "a.nt").write_text('<http://e/a> <http://e/p> "a" .\n')
    with (tmp_path / "b.nt").open("w") as file:
        file.writelines(f'<http://e/s{n}> <http://e/p> "value {n}" .\n' for n in range(400_000))
    command = [
        sys.executable, "-m", "tests.support.small_pieces", "tpf-load", "rdf",
        str(tmp_path / "a.nt"),
        str(tmp_path / "b.nt"), "-o", str(tmp_path / "store"), "--engine", "spark", "--master",
        "local[1]",
    ]  # fmt: skip
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with (tmp_path / "said").open("wb") as said:
        load = subprocess.Popen(
            command, cwd=PROJECT, env=environment, stderr=said, start_new_session=True
        )
    eventually(lambda: list(tmp_path.glob("tpf-spark-*/**/rdd_*")), load)
    load.send_signal(signal.SIGINT)
    assert load.wait(60) == 130
    assert (tmp_path / "said").read_text() == "tpf-load: interrupted\n"
    assert {path.name for path in tmp_path.iterdir()} == {"a.nt", "b.nt", "said"}
