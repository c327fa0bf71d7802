"""The session of jobs whose rows are few and large."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_OPTIONS: Final = {
    # A value may have megabytes: a task is to hold some of them, not thousands.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    # Java only carries rows from task to task: there is nothing to compile or to adapt.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def session_of(context: "SparkContext") -> "SparkSession":
    """A session of a running Spark, whose other sessions are as they were."""
    from pyspark.sql import SparkSession

    session = SparkSession(context).newSession()
    for name, value in _OPTIONS.items():
        session.conf.set(name, value)
    return session
