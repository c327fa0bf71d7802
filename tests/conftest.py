"""Distribution of the suite over workers, and the seed of random examples."""

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import TIMES
from tests.support.java_classes import use_class_archive
from tests.support.object_store import BUCKET, ObjectStore, object_store
from tests.support.spark_cluster import SparkCluster, standalone_cluster
from tpf_server.spark.java import JavaNotFoundError, find_java
from tpf_server.spark.session import SparkSettings, spark_context

# The same examples on every machine: a suite that was green stays green. New examples come with
# `pytest --hypothesis-profile=default`. Here or there, an example may take long and be large.
for profile in ("ci", "default"):
    settings.register_profile(
        profile,
        settings.get_profile(profile),
        max_examples=50 * TIMES,
        deadline=None,
        suppress_health_check=set(HealthCheck) - {HealthCheck.function_scoped_fixture},
    )
settings.load_profile("ci")

# Files of tests are in memory, where no store waits for a disk, unless there is little of it.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)

# Modules and tests are loaded by the million objects, of which none is garbage: by default it would
# be looked for hundreds of times.
gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests that share a Spark session or a peer program, largest groups first.

    Tests with Spark in processes of their own are a second group, so that at most two Sparks run.
    """
    for item in items:
        if item.get_closest_marker("xdist_group"):
            continue
        if item.get_closest_marker("spark"):
            shared = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if shared else "spark processes"))
        elif item.get_closest_marker("peers"):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


def pytest_collection_finish() -> None:
    """Exclude collected tests from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, bool | None, bool | None]:
    """Use the class archive before the first Java, outside of the time of a test."""
    if item.get_closest_marker("spark"):
        use_class_archive()
    done = yield
    if nextitem is None or nextitem.path != item.path:
        # What a module leaves is what it keeps for all, such as timelines that many tests read.
        gc.collect()
        gc.freeze()
    return done


@pytest.fixture(scope="session")
def java() -> None:
    """Skip where there is no Java, or no PySpark."""
    pytest.importorskip("pyspark")
    try:
        find_java(None, os.environ)
    except JavaNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark context for all tests."""
    work = tmp_path_factory.mktemp("spark")
    settings = SparkSettings(master="local[2]", memory="1g", local_dir=str(work))
    with spark_context(settings, name="tests") as context:
        yield context


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers that share only the network, where possible."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectStore]:
    """An object store that speaks S3, for all tests; see `remote`."""
    with object_store() as store:
        yield store


@pytest.fixture
def remote(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """An object store that this process finds, empty and without faults."""
    from tpf_server.store.static import file_systems

    for name, value in objects.environment.items():
        monkeypatch.setenv(name, value)
    objects.fails = lambda _method, _path: False
    monkeypatch.setattr(file_systems, "_ATTEMPTS", 3)  # each one waits longer
    file_systems.s3_system(objects.environment).delete_dir_contents(BUCKET)
    objects.requests.clear()
    yield objects
    objects.fails = lambda _method, _path: False
