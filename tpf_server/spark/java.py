"""Find a Java that Spark can use."""

import glob
import os
import re
import shutil
import subprocess  # runs `java -version`
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from annotations.wording import how_to_install

# Errors of starting Spark, each one line for the user.
#
# SparkError                   Spark is not available, did not start, or gave up
# ├── SparkJobError            a job failed
# ├── SparkSettingError        a setting that there is not
# └── SparkMissingError        something that Spark needs is not installed
#     └── JavaNotFoundError    no Java of a version that Spark can use


class SparkError(Exception):
    """Root of the errors of this package."""

    exit_status: ClassVar[int] = 1
    """With which a command ends that raises it."""


class SparkJobError(SparkError):
    """A job failed, or Spark refused it."""


class SparkSettingError(SparkError, ValueError):
    """There is no such setting."""

    exit_status = 2


class SparkMissingError(SparkError):
    """PySpark or Java is not installed."""


class JavaNotFoundError(SparkMissingError):
    """No Java of a version that Spark can use."""


MINIMUM_VERSION = 17
"""Spark 4 runs on Java 17 and later."""

_USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(
    java_home: str | None,
    environment: Mapping[str, str],
    positions: tuple[str, ...] = _USUAL_PLACES,
) -> Path:
    """Return the home of a Java that is new enough."""
    old: list[str] = []
    homes: Iterable[Path] = _candidates(environment, positions)
    if java_home is not None:
        homes = [Path(java_home)]
    for home in homes:
        version = _version_of(home)
        if version is not None and version >= MINIMUM_VERSION:
            return home
        if version is not None:
            old.append(f"Java {version} in {home}")
    if old:
        raise JavaNotFoundError(
            f"Spark needs Java {MINIMUM_VERSION} or later; found only {', '.join(old)}"
        )
    if java_home is not None:
        raise JavaNotFoundError(f"no Java in {java_home} (there is no bin/java that runs)")
    raise JavaNotFoundError(
        f"no Java found: Spark needs Java {MINIMUM_VERSION} or later (Debian, Ubuntu: apt-get "
        f"install default-jre-headless)"
    )


def _candidates(environment: Mapping[str, str], positions: tuple[str, ...]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home)
    if program := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(os.path.realpath(program)).parent.parent
    for pattern in positions:
        yield from (
            Path(path) for path in sorted(glob.glob(os.path.expanduser(pattern)), reverse=True)
        )


def _version_of(home: Path) -> int | None:
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - the program is one that the user installed
            [program, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match.group(1)) if match else None


def class_archive(folder: Path, java: Path) -> Path:
    """Return where an archive of the classes of this Java and PySpark is kept in a folder.

    Raises:
        SparkMissingError: PySpark is not installed.
    """
    spec = find_spec("pyspark")
    if spec is None:
        raise SparkMissingError(f"PySpark is not installed: {how_to_install('spark')}")
    release = java / "release"
    version = release.read_text(encoding="utf-8") if release.exists() else ""
    home = Path(os.environ.get("SPARK_HOME") or Path(str(spec.origin)).parent)
    jars = sorted((path.name, path.stat().st_mtime_ns) for path in (home / "jars").glob("*.jar"))
    # Java ignores an archive that does not fit them.
    fits = sha256(repr((str(java), version, str(home), jars)).encode()).hexdigest()[:16]
    return folder.absolute() / f"{fits}.jsa"
