"""A run on Spark in a process of its own, which may die on the way.

Arguments: the master URL, the directory, and how many answers it lives to see (0: all).
"""

import os
import sys
from pathlib import Path

from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.spark.execution import SparkExecution
from tpf_server.continuous.csparql.spark.session import continuous_session

STREAM = "http://e/s"
QUERY = """PREFIX : <http://e/>
REGISTER STREAM totals AS CONSTRUCT { ?z :total ?n } FROM STREAM :s [RANGE 6ms STEP 3ms]
WHERE { ?s :value ?v . ?s :in ?z } AGGREGATE { (?n, SUM(?v), {?z}) }"""
PREDICATE = "<http://e/value>"
STATIC = [(f"<http://e/{s}>", "<http://e/in>", f"<http://e/{z}>") for s, z in ("ax", "bx", "cy")]


def engine() -> CsparqlEngine:
    made = CsparqlEngine()
    made.add(STATIC)
    return made


def main(master: str, directory: Path, lives: int) -> None:
    seen = 0

    def count(_answer: PeriodicAnswer) -> None:
        nonlocal seen
        seen += 1
        if seen == lives:
            # The answers of the micro-batch are on the disk, but Spark does not know that yet.
            os._exit(9)

    with continuous_session(master, directory / "spark", memory="512m", partitions=1) as session:
        session.sparkContext.setLogLevel("ERROR")
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        execution = SparkExecution(
            session,
            QUERY,
            engine().static,
            {STREAM: directory / "stream"},
            directory / "out",
            on_answer=count,
        )
        print(execution.replay(files_per_trigger=1))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
