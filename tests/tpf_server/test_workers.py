"""The environment of workers."""

import os
import platform
import subprocess
import sys

import pytest

from tpf_server.workers import MEMORY

_PAGES = """
import resource
def page():
    return [b"x" * 120_000 for _ in range(20)]
page()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    page()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc")
def test_the_memory_of_a_large_page_is_used_again_by_the_next() -> None:
    order = [sys.executable, "-c", _PAGES]
    own = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    found = subprocess.run(order, env=own | MEMORY, capture_output=True, check=True, timeout=60)
    # 20 pages of 600 pages of memory each.
    assert int(found.stdout) < 1_000
