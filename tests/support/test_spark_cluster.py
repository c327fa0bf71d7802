"""The nodes of the cluster that tests use see no file of each other, and none of this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_cluster import PROJECT, SparkCluster

pytestmark = pytest.mark.spark

_PROGRAM = """
import json, os, sys
from pathlib import Path
from pyspark import BarrierTaskContext
from tpf_server.spark.session import SparkSettings, spark_context

def look(items):
    task = BarrierTaskContext.get()
    number = task.partitionId()
    mine, theirs = (Path("/tmp", f"of-task-{n}") for n in (number, 1 - number))
    mine.write_text("here")
    task.barrier()
    yield [os.environ["SPARK_LOCAL_IP"], mine.exists(), theirs.exists(), Path(sys_path).exists()]

sys_path = sys.argv[1]
with spark_context(SparkSettings.from_environment(os.environ), os.environ) as context:
    print(json.dumps(context.parallelize(range(2), 2).barrier().mapPartitions(look).collect()))
"""


def test_nodes_see_no_files_of_each_other(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    if spark_cluster.shared_because is not None:
        pytest.skip(spark_cluster.shared_because)
    (tmp_path / "of-the-driver").touch()
    done = subprocess.run(
        spark_cluster.command([sys.executable, "-c", _PROGRAM, str(tmp_path / "of-the-driver")]),
        env=spark_cluster.environment, cwd=PROJECT, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    # Two addresses, and each sees its own file only.
    assert len({address for address, *_ in seen}) == 2
    assert [rest for _, *rest in seen] == [[True, False, False]] * 2
