"""The Spark session of these tests, shared within the process."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.csparql_spark import SHORT_LIVED
from tpf_server.spark.java import JavaNotFoundError, find_java
from tpf_server.spark.session import SparkSettings, spark_session


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pyspark = pytest.importorskip("pyspark")
    sql = pytest.importorskip("pyspark.sql")
    present = pyspark.SparkContext._active_spark_context
    if present is not None:
        yield sql.SparkSession(present)
        return
    try:
        find_java(None, os.environ)
    except JavaNotFoundError as error:
        pytest.skip(str(error))
    work = tmp_path_factory.mktemp("spark")
    settings = SparkSettings(master="local[2]", memory="1g", local_dir=str(work))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVED)
        with spark_session(settings, name="tests") as session:
            yield session
