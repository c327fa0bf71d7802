"""Share constants and the supervision of workers, without loading any of the workers' code."""

import logging
from typing import Final

WORKER_VARIABLE: Final = "TPF_WORKER_CONFIGURATION"
"""Environment variable that names the file of settings that `tpf-server` hands to its workers. They
heed it when they start, and whenever it is replaced by another one."""

ADDRESS_VARIABLE: Final = "TPF_WORKER_ADDRESS"
"""Environment variable with host and port that the workers listen on, and a slash between them."""

MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that names the directory where the workers add up their counts."""

MOST_AT_ONCE: Final = 3
"""How many bodies a worker receives at the same time. A client that is slow, or that vanished
without a word, holds a thread until its connection ends; so others must have threads left."""

_KEPT_BYTES = str(4 << 20)

MEMORY: Final = {
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_TRIM_THRESHOLD_": _KEPT_BYTES,
    "MALLOC_MMAP_THRESHOLD_": _KEPT_BYTES,
}
"""Environment of the workers, unless set.

One heap for all threads is a tenth less memory: threads that share one interpreter lock hardly ever
allocate at the same time. What lies free at its end is kept up to 4 MiB: given back after each
large page, it costs as much as the page when the next one takes it again.
"""

THREADS: Final = MOST_AT_ONCE + 1
"""Threads of a worker: one at least is left for readers. They share one interpreter lock, so more
of them would only hand it over more often."""


class OneLine(logging.Formatter):
    """Write a record as one line: the path of a request may have line ends and escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return repr(super().format(record))[1:-1]
