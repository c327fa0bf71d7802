"""An archive of Spark's classes, which halves the start of a Java.

Java writes it when it ends (`ArchiveClassesAtExit`), for one class path, and ignores one that does
not fit. The first run makes it below ``.run``.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from tpf_server.spark.java import JavaNotFoundError, find_java

PROJECT = Path(__file__).resolve().parents[2]
_FOLDER = PROJECT / ".run" / "java"
_VARIABLE = "SPARK_SUBMIT_OPTS"
_SECONDS = 300
# None of them lives long enough for its second compiler to pay.
_LIGHT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# What most tests do: a query, a function in Python, a stream of files.
_PROGRAM = """
import sys
from pathlib import Path
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

work = Path(sys.argv[1])
conf = SparkConf()
for name, value in {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.local.dir": str(work / "local"),
    "spark.sql.warehouse.dir": str(work / "warehouse"),
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}.items():
    conf.set(name, value)
gateway = launch_gateway(conf)
context = SparkContext(conf=conf, gateway=gateway)
session = SparkSession(context)
context.parallelize(range(2), 2).map(str).collect()
session.range(9).selectExpr("id % 2 AS k", "id").groupBy("k").sum("id").collect()
(work / "in").mkdir()
(work / "in" / "a.txt").write_text("a")
lines = session.readStream.text(str(work / "in"))
writer = lines.writeStream.format("noop").option("checkpointLocation", str(work / "checkpoint"))
writer.trigger(availableNow=True).start().awaitTermination()
session.stop()
gateway.shutdown()
# Java ends with its standard input, and writes the archive then.
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def use_class_archive() -> None:
    """Let every Java of Spark that this process starts map the archive."""
    if _VARIABLE in os.environ or find_spec("pyspark") is None:
        return
    if len(str(_FOLDER).split()) > 1:
        return  # what Java is told there is cut at spaces
    try:
        java = find_java(None, os.environ)
    except JavaNotFoundError:
        return
    archive = _FOLDER / f"{_fingerprint(java)}.jsa"
    if not archive.exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        with (_FOLDER / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not archive.exists():
                _make(java, archive)
    # Nothing is tried twice.
    mapped = f"-XX:SharedArchiveFile={archive}" if archive.exists() else ""
    light = f"{_LIGHT} {mapped}".strip()
    # Of the driver, which tells the executors of a cluster theirs; and of master and workers.
    os.environ[_VARIABLE] = f'{mapped} "-Dspark.executor.extraJavaOptions={light}"'.strip()
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = light


def _fingerprint(java: Path) -> str:
    """Identify what an archive fits."""
    spec = find_spec("pyspark")
    assert spec is not None
    release = java / "release"
    told = release.read_text(encoding="utf-8") if release.exists() else ""
    home = Path(str(spec.origin)).parent
    jars = sorted((path.name, path.stat().st_mtime_ns) for path in (home / "jars").glob("*.jar"))
    return sha256(repr((str(java), told, str(home), jars)).encode()).hexdigest()[:16]


def _make(java: Path, archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=_FOLDER, ignore_cleanup_errors=True) as folder:
        made = Path(folder, "made.jsa")
        environment = os.environ | {
            "JAVA_HOME": str(java),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            _VARIABLE: f"-XX:ArchiveClassesAtExit={made}",
        }
        quiet = subprocess.DEVNULL
        try:
            done = subprocess.run(
                [sys.executable, "-c", _PROGRAM, folder], env=environment, stdin=quiet,
                stdout=quiet, stderr=quiet, timeout=_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return
        if done.returncode == 0 and made.exists():
            made.rename(archive)
