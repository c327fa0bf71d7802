"""Describe the machine, versions and commit of a run."""

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psutil

from experiments.errors import MeasurementError, UnavailableError
from experiments.harness import peers

PROJECT = Path(__file__).parents[2]
_PACKAGES = (
    "flask", "granian", "numpy", "pyarrow", "pyoxigraph", "pyspark", "rdflib", "requests",
)  # fmt: skip


def describe_machine() -> Mapping[str, str]:
    """Describe machine and system, without names of hosts or people."""
    return {
        "processor": _processor(),
        "cores": f"{os.cpu_count()} (usable by this process: {len(os.sched_getaffinity(0))})",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
    }


def load_average() -> str:
    """Return the load of the last minute."""
    return f"{os.getloadavg()[0]:.2f}"


def describe_versions() -> Mapping[str, str]:
    """Return the commit, and the versions of packages and peers."""
    described = {"commit": commit()}
    for name in _PACKAGES:
        try:
            described[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            described[name] = "not installed"
    return described | peers.versions()


def commit() -> str:
    """Return the project's commit, marked if files differ from it."""
    try:
        revision = git(PROJECT, "rev-parse", "--short=12", "HEAD")
        changed = git(PROJECT, "status", "--porcelain", "--untracked-files=no")
    except (MeasurementError, UnavailableError):
        return "unknown (not a repository)"
    return f"{revision} with uncommitted changes" if changed else revision


def git(project: Path, *arguments: str) -> str:
    """Return what git says of a project."""
    try:
        answer = subprocess.run(  # noqa: S603
            ["git", "-C", str(project), *arguments],  # noqa: S607
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"git does not start: {error}") from error
    if answer.returncode:
        raise MeasurementError(f"git {arguments[0]}: {' '.join(answer.stderr.split())}")
    return answer.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
