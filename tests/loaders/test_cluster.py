"""A load on a cluster that shares only an object store loses an executor."""

import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from tests.support.object_store import BUCKET, KEYS
from tests.support.small_pieces import PIECE_BYTES
from tests.support.spark_cluster import PROJECT, SparkCluster
from tpf_server.store.static.indexing import index_files
from tpf_server.store.static.manifest import read_manifest

LOADS = int(os.environ.get("TPF_TEST_KILLED_LOADS", "1"))
"""How many loads lose an executor, each at another moment."""
LINES = 14_000 if LOADS == 1 else 215_000
"""Two pieces of a file; where many moments are tried, the load takes longer than starting it."""
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900 * LOADS)]
URL = f"s3://{BUCKET}/city.store"
_FETCH = """
import os, sys
from pathlib import Path
from tpf_server.store.static.fetching import fetch_store, remote_manifest
from tpf_server.store.static.file_systems import RemoteFolder
import json
manifest = remote_manifest(RemoteFolder(sys.argv[1], os.environ))
parts = {name: len(parts) for name, parts in manifest.parts.items()}
print(json.dumps([str(fetch_store(sys.argv[1], Path(sys.argv[2]), os.environ)), parts]))
"""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two pieces of a file, and a compressed one."""
    folder = tmp_path / "objects" / "in"
    folder.mkdir(parents=True)
    about = (
        "a text that makes a file longer than a piece of it, so that " + "two tasks read it " * 2
    )
    with (folder / "a.nt").open("w") as out:
        out.writelines(
            f'<http://e/s{n % 7_001}> <http://e/p{n % 7}> "value {n % 90_001} {about}"@en .\n'
            for n in range(LINES)
        )
    assert (folder / "a.nt").stat().st_size > PIECE_BYTES
    (folder / "b.nq.gz").write_bytes(gzip.compress(b'_:a <http://e/p> "b" <http://e/g> .\n'))
    return [folder / "a.nt", folder / "b.nq.gz"]


@pytest.fixture
def environment(
    spark_cluster: SparkCluster, files: list[Path], tmp_path: Path
) -> Iterator[dict[str, str]]:
    """The environment of a driver, with an object store of the files."""
    pytest.importorskip("moto.server")
    command = [sys.executable, "-m", "tests.support.object_store", spark_cluster.host]
    store = subprocess.Popen(
        spark_cluster.command([*command, tmp_path / "objects"]),
        cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    with store:
        try:
            assert store.stdout is not None
            yield (
                spark_cluster.environment
                | KEYS
                | {"AWS_ENDPOINT_URL": store.stdout.readline().strip()}
            )
        finally:
            store.kill()


def test_a_cluster_writes_the_same_store_and_loses_an_executor(
    spark_cluster: SparkCluster, files: list[Path], environment: dict[str, str], tmp_path: Path
) -> None:
    wanted = index_files(files, tmp_path / "reference", created=datetime(2026, 1, 1, tzinfo=UTC))
    reference = tmp_path / "reference" / wanted.generation
    pick = random.Random(20)
    killed = 0
    for number in range(LOADS):
        load = subprocess.Popen(
            spark_cluster.command(
                [
                    *(sys.executable, "-m", "tests.support.small_pieces", "tpf-load", "rdf"),
                    f"s3://{BUCKET}/in",
                    *("-o", URL, "--replace", "--engine", "spark", "--quiet"),
                ]
            ),
            env=environment, cwd=PROJECT, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            executor = spark_cluster.working_executor(load)
            if number:
                # At any moment of the load, which may have ended then.
                time.sleep(pick.uniform(0, 12))
            try:
                executor.kill()
                killed += 1
            except psutil.NoSuchProcess:
                pass
            _, said = load.communicate(timeout=600)
        finally:
            load.kill()
            load.wait()
        assert (load.returncode, said) == (0, "")
        fetched = subprocess.run(
            spark_cluster.command([sys.executable, "-c", _FETCH, URL, tmp_path / "cache"]),
            env=environment, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
        store, parts = json.loads(fetched.stdout)
        assert all(count > 1 for count in parts.values()), parts
        found = read_manifest(Path(store))
        assert found.version == wanted.version
        for name in wanted.files:
            content = (Path(store) / found.generation / name).read_bytes()
            assert content == (reference / name).read_bytes(), name
    assert killed > LOADS // 2
