"""A run on Spark in a process of its own, which may die on the way.

Arguments: the URL for input and output, a local directory, and the number of answers until its Java
dies. With 0 it lives, but waits at the first one for a file `GO`.
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.errors import ContinuousError
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.spark.execution import SparkExecution, continuous_session

WAITING, GO = "waiting", "go"
STREAM = "http://e/s"
QUERY = """PREFIX : <http://e/>
REGISTER STREAM totals AS CONSTRUCT { ?z :total ?n } FROM STREAM :s [RANGE 6ms STEP 3ms]
WHERE { ?s :value ?v . ?s :in ?z } AGGREGATE { (?n, SUM(?v), {?z}) }"""
PREDICATE = "<http://e/value>"
STATIC = [(f"<http://e/{s}>", "<http://e/in>", f"<http://e/{z}>") for s, z in ("ax", "bx", "cy")]


def engine() -> Engine:
    made = Engine()
    made.add(STATIC)
    return made


def main(master: str, url: str, directory: Path, lives: int) -> None:
    seen = 0

    def count(_answer: PeriodicAnswer) -> None:
        nonlocal seen
        seen += 1
        if seen == lives:
            # The answers of the micro-batch are written, but Spark does not know that yet.
            gateway: Any = SparkContext._gateway
            os.kill(gateway.proc.pid, signal.SIGKILL)
        if lives == 0 and seen == 1:
            (directory / WAITING).touch()
            while not (directory / GO).exists():
                time.sleep(0.05)

    os.environ["TPF_SPARK_MEMORY"] = "512m"
    with (
        tempfile.TemporaryDirectory() as work,
        continuous_session(master, Path(work), partitions=1) as session,
    ):
        session.sparkContext.setLogLevel("ERROR")
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        execution = SparkExecution(
            session, QUERY, engine().static, {STREAM: f"{url}/stream"}, f"{url}/out",
            on_answer=count,
        )  # fmt: skip
        print(execution.replay(files_per_trigger=1))  # noqa: T201


if __name__ == "__main__":
    try:
        main(os.environ["TPF_SPARK_MASTER"], sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    except ContinuousError as error:
        sys.exit(f"failed: {error}")
