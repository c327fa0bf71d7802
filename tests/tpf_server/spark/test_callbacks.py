"""Errors of Python that Java calls, and interrupts, are raised once, and logged nowhere."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tpf_server.spark.java import SparkError
from tpf_server.spark.session import JAVA_ENDED, java_gateway

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


@pytest.mark.usefixtures("spark")
def test_an_interrupt_amid_a_call_prints_nothing(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt = (threading.main_thread().ident, signal.SIGINT)
    threading.Timer(0.5, signal.pthread_kill, interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            java_gateway().jvm.java.lang.Thread.sleep(3_000)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
