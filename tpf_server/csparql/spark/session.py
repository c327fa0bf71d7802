"""How a Spark session must be configured for continuous queries.

The state store is RocksDB, so that windows may be larger than memory. Everything listens on the
loopback interface only, unless the host says otherwise.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

_ROOT = str(Path(__file__).resolve().parents[3])
_ENVIRONMENT = ("PYSPARK_PYTHON", "PYTHONPATH", "SPARK_LOCAL_IP")
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def configuration(
    master: str, work: Path, *, memory: str = "1g", host: str = "127.0.0.1", partitions: int = 2
) -> dict[str, str]:
    """The settings of a session.

    Args:
        master: the master URL: ``local[2]``, ``spark://host:7077``.
        work: directory for temporary files.
        memory: of the driver and of each executor.
        host: the address on which the driver is reached.
        partitions: of shuffles, and so of the state; a checkpoint keeps the number it began with.
    """
    return {
        "spark.app.name": "tpf-continuous",
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.executor.memory": memory,
        "spark.driver.bindAddress": host,
        "spark.driver.host": host,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(work),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
        # Plans are small and many: adapting each of them costs more than it brings.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
        "spark.executorEnv.PYTHONPATH": _ROOT,
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={work}",
    }


@contextlib.contextmanager
def continuous_session(
    master: str, work: Path, *, memory: str = "1g", host: str = "127.0.0.1", partitions: int = 2
) -> Iterator[SparkSession]:
    """A session that ends with the block."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    paths = [_ROOT, *filter(None, [before["PYTHONPATH"]])]
    os.environ.update(
        PYSPARK_PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(paths), SPARK_LOCAL_IP=host
    )
    settings = configuration(master, work, memory=memory, host=host, partitions=partitions)
    builder = SparkSession.builder
    for key, setting in settings.items():
        builder = builder.config(key, setting)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
