"""An archive of Spark's classes, which halves the start of a Java.

Java writes it when it ends (`ArchiveClassesAtExit`), for one class path, and ignores one that does
not fit. The first run makes it below ``.run``.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tpf_server.spark.java import JavaNotFoundError, class_archive, find_java

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / ".run" / "java"
_VARIABLE = "SPARK_SUBMIT_OPTS"
_SECONDS = 300
# None of them lives long enough for its second compiler to pay.
_LIGHT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def use_class_archive() -> None:
    """Let every Java of Spark that this process starts map the archive."""
    if _VARIABLE in os.environ or find_spec("pyspark") is None:
        return
    if len(str(FOLDER).split()) > 1:
        return  # what Java is told there is cut at spaces
    try:
        java = find_java(None, os.environ)
    except JavaNotFoundError:
        return
    archive = class_archive(FOLDER, java)
    if not archive.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with (FOLDER / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not archive.exists():
                _make()
    # Nothing is tried twice.
    mapped = f"-XX:SharedArchiveFile={archive}" if archive.exists() else ""
    light = f"{_LIGHT} {mapped}".strip()
    # Of the driver, which tells the executors of a cluster theirs; and of master and workers.
    os.environ[_VARIABLE] = f'{mapped} "-Dspark.executor.extraJavaOptions={light}"'.strip()
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = light


def _make() -> None:
    quiet = subprocess.DEVNULL
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "tpf_client.commands", "tpf-load", "classes", str(FOLDER)],
            cwd=PROJECT, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_SECONDS, check=False,
        )  # fmt: skip
