"""How the suite is spread over two cores, and which random examples it tries."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.object_store import BUCKET, ObjectStore, object_store
from tests.support.spark_cluster import SparkCluster, standalone_cluster

# The same examples on every machine: a suite that was green stays green. New examples come with
# `pytest --hypothesis-profile=default`.
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests together that share something dear: one Spark session, one program of others."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("peers"):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers that share nothing but the network, where that can be had."""
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
