"""Errors of Python that Java calls are raised once, and logged nowhere."""

from pathlib import Path
from typing import Any

import pytest

from tpf_server.spark.java import SparkError
from tpf_server.spark.session import JAVA_ENDED

pytestmark = [pytest.mark.spark]


def _fails(_frame: Any, _number: int) -> None:
    raise SparkError(JAVA_ENDED)


def test_a_callback_that_fails_prints_nothing(
    spark: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines.txt").write_text("a line\n")
    query = (
        SparkSession(spark)
        .readStream.text(str(tmp_path / "in"))
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(_fails)
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="_fails"):
        query.awaitTermination()
    assert not [each for each in caplog.records if each.name.startswith("py4j")]
    assert capfd.readouterr() == ("", "")
