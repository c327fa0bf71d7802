"""The npm packages that build and test the page."""

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.peers import PROJECT

PAGE = PROJECT / "tpf_client/page"
_HERE = PROJECT / ".run/page"


def page_modules() -> Path:
    """Return the ``node_modules`` of the lock file, or skip."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm found: install Debian's package npm")
    _HERE.mkdir(parents=True, exist_ok=True)
    with (_HERE / "lock").open("w") as alone:
        # Of several processes that run tests, one installs.
        fcntl.flock(alone, fcntl.LOCK_EX)
        return _installed(npm)


def _installed(npm: str) -> Path:
    lock = (PAGE / "package-lock.json").read_text()
    stamp = _HERE / "installed"
    if not stamp.is_file() or stamp.read_text() != lock:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PAGE / name, _HERE)
        done = subprocess.run(
            [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=_HERE, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"npm cannot install the page's packages: {done.stderr.strip()[-200:]}")
        stamp.write_text(lock)
    return _HERE / "node_modules"
