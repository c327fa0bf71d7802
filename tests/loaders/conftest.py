"""The Spark context of these tests: one for all of them, and none without Java."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tpf_spark.errors import JavaNotFoundError
from tpf_spark.java import find_java
from tpf_spark.session import SparkSettings, spark_context


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark")
    try:
        find_java(None, os.environ)
    except JavaNotFoundError as error:
        pytest.skip(str(error))
    work = tmp_path_factory.mktemp("spark")
    settings = SparkSettings(master="local[2]", memory="1g", local_dir=str(work))
    with spark_context(settings, name="tests") as context:
        yield context
