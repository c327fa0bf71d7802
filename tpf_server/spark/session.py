"""Start Spark on ``local[*]`` or a cluster, bound to loopback, with a log file; watch executors."""

import contextlib
import logging
import os
import re
import signal
import subprocess  # of its Java
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from annotations.urls import is_loopback
from annotations.wording import how_to_install
from tpf_server.spark.java import (
    SparkError,
    SparkJobError,
    SparkMissingError,
    SparkSettingError,
    class_archive,
    find_java,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_PREFIX = "TPF_SPARK_"
JAVA_ENDED = "the Java that Spark runs in has ended"
_END_SECONDS = 5.0
_DRIVER_FLAGS = "spark.driver.extraJavaOptions"
_LIGHT_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of Spark.

    Args:
        master: the master URL: ``local[*]``, ``local[2]``, ``spark://host:7077``.
        memory: of the driver (which is the worker in ``local[…]`` mode), as Java writes it.
        executor_memory: of each executor of a cluster.
        java_home: directory that holds ``bin/java``; ``None``: search the usual ones.
        log: of Spark and Java; ``None``: ``spark.log`` in `local_dir`.
        host: address of the driver; loopback unless the cluster needs more.
        packages: Maven coordinates to fetch, separated by commas, as the source of Kafka needs.
        ui: port of Spark's web pages, at `host`, or the next free one; ``None``: none are served.
        classes: directory with an archive of Java's classes (see `archive_classes`), with which it
            starts in half the time.
    """

    master: str = "local[*]"
    memory: str = "2g"
    executor_memory: str = "1g"
    java_home: str | None = None
    local_dir: str | None = None
    log: str | None = None
    host: str = "127.0.0.1"
    packages: str | None = None
    ui: str | None = None
    classes: str | None = None

    def __post_init__(self) -> None:
        if self.ui is not None and not (self.ui.isdecimal() and int(self.ui) < 1 << 16):
            raise SparkSettingError(f"{_PREFIX}UI is a port from 0 to 65535, not {self.ui!r}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **given: Any) -> "SparkSettings":
        """Read ``TPF_SPARK_MASTER`` and the like; `given` values take precedence."""
        names = {field.name for field in fields(cls)}
        values: dict[str, Any] = {}
        for key, value in environment.items():
            if key.startswith(_PREFIX):
                name = key.removeprefix(_PREFIX).lower()
                if name not in names:
                    raise SparkSettingError(f"{key} is no setting of Spark; known: {sorted(names)}")
                values[name] = value
        values.update({name: value for name, value in given.items() if value is not None})
        return cls(**values)


def java_for(settings: SparkSettings, environment: Mapping[str, str]) -> Path:
    """Return the Java that Spark would start with.

    Raises:
        SparkSettingError: executors of a cluster could not reach the driver, and Spark would
            replace them for ever.
        JavaNotFoundError: no Java, or none that is new enough.
    """
    if is_loopback(settings.host) and not settings.master.startswith("local"):
        addresses = settings.master.partition("://")[2].split(",")
        hosts = [re.sub(r":\d+$", "", each).strip("[]") for each in addresses]
        if not all(map(is_loopback, hosts)):
            raise SparkSettingError(
                f"executors of {settings.master} cannot reach the driver at {settings.host}: set "
                f"{_PREFIX}HOST to the address that this machine has in their network"
            )
    return find_java(settings.java_home, environment)


@contextlib.contextmanager
def spark_session(
    settings: SparkSettings,
    environment: Mapping[str, str] | None = None,
    name: str = "tpf-load",
    options: Mapping[str, str] | None = None,
    harmless: tuple[type[Exception], ...] = (),
) -> Iterator["SparkSession"]:
    """Start a Spark session, for data frames and streams; see `spark_context`."""
    with spark_context(settings, environment, name, options, harmless) as context:
        from pyspark.sql import SparkSession

        session = SparkSession(context)
        try:
            yield session
        finally:
            if _ended(java_gateway()) is None:
                session.stop()


@contextlib.contextmanager
def spark_context(
    settings: SparkSettings,
    environment: Mapping[str, str] | None = None,
    name: str = "tpf-load",
    options: Mapping[str, str] | None = None,
    harmless: tuple[type[Exception], ...] = (),
) -> Iterator["SparkContext"]:
    """Start a Spark context; stop it, with its Java, at the end of the block.

    `options` override common ones. After errors in `harmless` no log is kept.

    Raises:
        SparkError: Spark is missing or did not start, one runs already, or its Java has ended.
    """
    java = java_for(settings, os.environ if environment is None else environment)
    try:
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
        from pyspark.java_gateway import launch_gateway
    except ImportError as error:
        raise SparkMissingError(f"PySpark is not installed: {how_to_install('spark')}") from error
    if _gateways:
        raise SparkError("a Spark session runs already in this process")
    with contextlib.ExitStack() as stack:
        if settings.local_dir is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tpf-spark-")))
        else:
            work = Path(settings.local_dir)
            work.mkdir(parents=True, exist_ok=True)
        log_path = _log_path(settings)
        log = stack.enter_context(log_path.open("ab"))
        begin = log.tell()
        conf = SparkConf()
        for key, value in (_configuration(settings, work, name) | dict(options or {})).items():
            conf.set(key, value)
        if settings.classes is not None:
            archive = class_archive(Path(settings.classes), java)
            if os.path.exists(archive):
                flag = f"-XX:SharedArchiveFile={archive}"
                conf.set(_DRIVER_FLAGS, f'{conf.get(_DRIVER_FLAGS)} "{flag}"')
            else:
                text = "%s has no classes of this Java and PySpark: tpf-load classes %s"
                _log.warning(text, settings.classes, settings.classes)
        # The context reads these when it starts; the workers run the Python of this process.
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        where = {"JAVA_HOME": str(java), "SPARK_LOCAL_IP": settings.host}
        stack.enter_context(_environment(python | where))
        if settings.log is None and settings.local_dir is None:
            # Kept where Spark fails, because nothing else tells why.
            stack.enter_context(_removed_unless_spark_fails(log_path, harmless))

        # A callback's error is raised where its job is awaited. If Java has ended nobody waits.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        # It gives an interrupt to the root logger, with a traceback, before raising it.
        logging.getLogger().addFilter(_is_not_of_py4j)
        stack.callback(logging.getLogger().removeFilter, _is_not_of_py4j)

        def start() -> "SparkContext":
            try:
                gateway = cast("Any", launch_gateway)(
                    conf, popen_kwargs={"stdout": log, "stderr": log}
                )
            except PySparkException as error:
                reason = _reason(log_path)
                raise SparkError(f"Spark did not start{reason}; see {log_path}") from error
            _gateways.append(gateway)
            stack.callback(_shut_down, gateway)
            try:
                context = SparkContext(conf=conf, gateway=gateway)
            except (PySparkException, Py4JError, ValueError) as error:
                reason = _first_line(error)
                raise SparkError(f"Spark did not start: {reason}; see {log_path}") from error
            stack.callback(_stop, context)
            return context

        context = _to_its_end(start)
        if settings.ui is not None:
            _log.warning("Spark's web pages: %s", context.uiWebUrl)
        try:
            yield context
        except (Py4JError, ConnectionError) as error:
            said = _text_of(error) + log_path.read_bytes()[begin:]
            if _OUT_OF_MEMORY in said:
                raise SparkError(
                    f"{settings.memory} are too little memory for Java: set --memory or "
                    f"TPF_SPARK_MEMORY (executors: TPF_SPARK_EXECUTOR_MEMORY); see {log_path}"
                ) from error
            if _DISK_FULL in said:
                reason = "no space is left for Spark's temporary files: set TPF_SPARK_LOCAL_DIR"
                raise SparkError(f"{reason}; see {log_path}") from error
            # Connections to a process that is killed break before it is gone.
            from_java = isinstance(error, Py4JJavaError)
            status = None if from_java else _ended(java_gateway(), _END_SECONDS)
            if status is None:
                raise
            raise SparkError(f"{JAVA_ENDED} (status {status}); see {log_path}") from error


def archive_classes(settings: SparkSettings) -> Path:
    """Archive the classes that Java loads for small jobs in the directory `settings.classes`.

    Raises:
        SparkError: the directory cannot be written, or Spark cannot run.
    """
    alone = replace(settings, master="local[2]", classes=None)
    archive = class_archive(Path(settings.classes or ""), java_for(alone, os.environ))
    with contextlib.ExitStack() as stack:
        try:
            archive.parent.mkdir(parents=True, exist_ok=True)
            folder = tempfile.TemporaryDirectory(dir=archive.parent, prefix=".making-")
        except OSError as error:
            raise SparkSettingError(
                f"{archive.parent} is no directory to write to: {error.strerror}"
            ) from error
        work = Path(stack.enter_context(folder))
        made = work / archive.name
        options = {
            _DRIVER_FLAGS: f'{_LIGHT_JAVA} "-XX:ArchiveClassesAtExit={made}"',
            "spark.sql.shuffle.partitions": "1",
        }
        with spark_session(alone, name="tpf-load classes", options=options) as session:
            process = java_gateway().proc
            _small_jobs(session, work)
        if process.returncode != 0 or not made.exists():
            raise SparkError(f"Java ended with status {process.returncode} and made no archive")
        made.replace(archive)
    return archive


def _small_jobs(session: "SparkSession", work: Path) -> None:
    """Group, call Python, write and read Parquet, follow files: what loads and queries do."""
    rows = session.range(9).selectExpr("id % 2 AS k", "id").groupBy("k").sum("id")
    rows.mapInArrow(lambda batches: batches, rows.schema).toArrow()
    session.range(2).write.parquet(str(work / "parquet"))
    session.read.parquet(str(work / "parquet")).collect()
    lines = work / "lines"
    lines.mkdir()
    (lines / "a.txt").write_text("a", encoding="utf-8")
    writer = session.readStream.text(str(lines)).writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(work / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


class ExecutorWatch:
    """Counts the executors of a running Spark, and those that it has lost.

    Attributes:
        report: the counts of the last look, whether work waits for executors, and the address of
            Spark's web pages.
    """

    def __init__(self, context: "SparkContext") -> None:
        self._tracker = context.statusTracker()
        self._local = str(context.master).startswith("local[")
        self._ui = context.uiWebUrl
        self._running: set[tuple[str, int]] = set()
        self._lost = 0
        self.report: dict[str, Any] = {}

    def look(self) -> None:
        """Ask Spark; one that is replaced between two looks counts as lost."""
        # One that is only starting has no port yet.
        infos = self._tracker.getExecutorInfos()
        running = {(each.host, each.port) for each in infos if each.port}
        self._lost += len(self._running - running)
        self._running = running
        # The driver is among them; in local mode it is the executor.
        executors = len(running) if self._local else len(running) - 1
        self.report = {"executors": executors, "lost": self._lost, "waiting": executors < 1}
        if self._ui is not None:
            self.report["ui"] = self._ui


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


@contextlib.contextmanager
def java_answers() -> Iterator[None]:
    """Raise `SparkJobError` where a job fails, and `SparkError` where Java has ended."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if isinstance(error, Py4JJavaError):
            cause = error.java_exception
            while cause.getCause() is not None:
                cause = cause.getCause()
            text = str(cause.getMessage())
        lines = text.strip().splitlines() or [type(error).__name__]
        # Of an exception in a worker the traceback follows.
        is_python = "Python worker" in lines[0] or lines[0].startswith("Traceback")
        reason = lines[-1] if is_python else lines[0]
        raise SparkJobError(f"the run on Spark failed: {reason}") from error
    except (Py4JError, ConnectionError) as error:
        raise SparkError(JAVA_ENDED) from error


@contextlib.contextmanager
def _removed_unless_spark_fails(log: Path, harmless: tuple[type[Exception], ...]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if isinstance(error, (*harmless, KeyboardInterrupt, SystemExit)):
            log.unlink(missing_ok=True)
        raise
    log.unlink(missing_ok=True)


def _log_path(settings: SparkSettings) -> Path:
    if settings.log is not None:
        return Path(settings.log)
    if settings.local_dir is not None:
        return Path(settings.local_dir) / "spark.log"
    # Under a name that nobody else on the machine can take first.
    descriptor, name = tempfile.mkstemp(".log", "tpf-spark-")
    os.close(descriptor)
    return Path(name)


def _configuration(settings: SparkSettings, work: Path, name: str) -> dict[str, str]:
    # The workers import this package, installed or not.
    package_root = str(Path(__file__).resolve().parents[2])
    cores = os.cpu_count() or 2
    more = {"spark.ui.enabled": "false" if settings.ui is None else "true"}
    if settings.ui is not None:
        more["spark.ui.port"] = settings.ui
    if settings.packages is not None:
        more["spark.jars.packages"] = settings.packages
    return more | {
        "spark.app.name": name,
        "spark.master": _with_retries(settings.master),
        "spark.driver.memory": settings.memory,
        "spark.executor.memory": settings.executor_memory,
        "spark.driver.bindAddress": settings.host,
        "spark.driver.host": settings.host,
        "spark.ui.showConsoleProgress": "false",
        # Each call would tell Java which line of ours it comes from.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.local.dir": str(work),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # From 4.1 on a union says that it keeps the partitions of its parts also where it does
        # not: a join after it failed, "Can't zip RDDs with unequal numbers of partitions".
        "spark.sql.unionOutputPartitioning": "false",
        "spark.executorEnv.PYTHONPATH": package_root,
        # local[…] runs its Python workers as children of this process's Java.
        # Plans are many and small, and tasks wait for Python: compiling more costs more CPU than it
        # saves, for the first minutes at least.
        _DRIVER_FLAGS: f"-Djava.io.tmpdir={work} {_LIGHT_JAVA}",
    }


def _with_retries(master: str) -> str:
    """Let ``local[…]`` try a task four times, as a cluster does."""
    match = _LOCAL.fullmatch(master)
    return master if match is None else f"local[{match[1] or 1},4]"


_LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _to_its_end(start: Callable[[], "SparkContext"]) -> "SparkContext":
    """Start Spark in another thread, which interrupts do not reach.

    A Java half started could not be ended, and PySpark's handler for Ctrl-C would call it amid
    another call.
    """
    with ThreadPoolExecutor(1, "spark-start") as pool:
        starting = pool.submit(start)
        try:
            return starting.result()
        except BaseException:
            if threading.current_thread() is threading.main_thread():
                before = signal.signal(signal.SIGINT, signal.SIG_IGN)
                try:
                    wait([starting])
                finally:
                    signal.signal(signal.SIGINT, before)
            raise


_gateways: list[Any] = []
"""The gateway to the Java of the session that runs in this process."""


def java_gateway() -> Any:
    """Return py4j's gateway to the Java of the running session."""
    if not _gateways:
        raise SparkError("no Spark session of this package runs")
    return _gateways[-1]


def _ended(gateway: Any, seconds: float = 0.0) -> int | None:
    """Return the exit status of Java, waiting up to `seconds`; ``None``: it runs."""
    if gateway is None or gateway.proc is None:
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        return int(gateway.proc.wait(timeout=seconds))
    return None


def _stop(context: "SparkContext") -> None:
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, ConnectionError):
        context.stop()
    context.stop()  # the rest, where there is no Java to stop any more


def _shut_down(gateway: Any) -> None:
    """End the Java process by closing its standard input; a later session starts its own."""
    from pyspark import SparkContext

    process = gateway.proc
    _gateways.remove(gateway)
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is not None:
        process.stdin.close()
        process.wait(timeout=60)  # some seconds where it archives its classes


def _reason(log: Path) -> str:
    match = _JAVA_PROBLEM.search(log.read_text(encoding="utf-8", errors="replace"))
    return f" ({match[1].strip()})" if match else ""


_OUT_OF_MEMORY = b"java.lang.OutOfMemoryError"
_DISK_FULL = b"No space left on device"
_JAVA_PROBLEM = re.compile(
    r"""^(?:Exception in thread "main" [\w.$]+: |(?=Invalid |Unrecognized ))(.+)$""", re.MULTILINE
)


def _text_of(error: BaseException) -> bytes:
    try:
        return str(error).encode()
    except Exception:  # noqa: BLE001 - its text is asked of a Java that may have ended
        return b""


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # Of an error in Java, the first line only says which call it was.
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0])
