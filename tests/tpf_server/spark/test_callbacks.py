"""Errors of Python that Java calls are raised once, and logged nowhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tpf_server.spark.java import SparkError
from tpf_server.spark.session import JAVA_ENDED

pytestmark = [pytest.mark.spark]


def _as_if_java_had_ended(_frame: Any, _number: int) -> None:
    from py4j.protocol import Py4JNetworkError

    raise Py4JNetworkError("Answer from Java side is empty")


def _connection(_frame: Any, _number: int) -> None:
    raise ConnectionRefusedError(JAVA_ENDED)


def _own(_frame: Any, _number: int) -> None:
    raise SparkError(JAVA_ENDED)


@pytest.mark.parametrize("callback", [_as_if_java_had_ended, _connection, _own])
def test_a_callback_that_fails_prints_nothing(
    spark: Any,
    tmp_path: Path,
    callback: Callable[[Any, int], None],
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
        .foreachBatch(callback)
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match=callback.__name__):
        query.awaitTermination()
    assert not [each for each in caplog.records if each.name.startswith("py4j")]
    assert capfd.readouterr() == ("", "")
