"""How the suite is spread over two cores, and which random examples it tries."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

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
