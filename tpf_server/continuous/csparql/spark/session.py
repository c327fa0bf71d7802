"""A Spark session for continuous queries.

The state store is RocksDB, so that windows may be larger than memory.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tpf_server.continuous.engine.errors import ContinuousError
from tpf_server.spark.java import SparkError
from tpf_server.spark.session import SparkSettings, spark_session

ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextlib.contextmanager
def continuous_session(
    master: str, work: Path, *, memory: str | None = None, partitions: int = 2
) -> Iterator[SparkSession]:
    """A session that ends with the block; see `tpf_server.spark.session`.

    What is not given here comes from the environment (``TPF_SPARK_JAVA_HOME`` and others).

    Raises:
        ContinuousError: there is no Java, or Spark did not start.
    """
    settings = SparkSettings.from_environment(
        os.environ,
        master=master,
        memory=memory,
        executor_memory=memory,
        local_dir=str(work),
    )
    options = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
        # Plans are small and many: adapting each of them costs more than it brings.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
        # Java works for long here: it is to compile all that it can.
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={work}",
    }
    try:
        with spark_session(settings, name="tpf-continuous", options=options) as session:
            yield session
    except SparkError as error:
        raise ContinuousError(str(error)) from error
