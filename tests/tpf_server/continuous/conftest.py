"""The Spark session of these tests."""

from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(spark: Any) -> Any:
    """A session in the context of all tests."""
    from pyspark.sql import SparkSession

    return SparkSession(spark)
