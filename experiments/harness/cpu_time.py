"""The CPU that a process has used, by the clock that the kernel keeps for it.

``/proc/PID/stat`` and psutil count in ticks of 10 ms. The CPU clock of a process (POSIX
``clock_getcpuclockid``) has nanoseconds, and goes on counting threads that have ended, which
``/proc/PID/task/*/schedstat`` forgets.
"""

import ctypes
import time
from collections.abc import Callable
from typing import Any

import psutil

_getcpuclockid: Callable[..., Any] | None
try:
    _getcpuclockid = ctypes.CDLL(None).clock_getcpuclockid
except (OSError, AttributeError, TypeError):  # a system without such clocks
    _getcpuclockid = None


def cpu_time(process: psutil.Process) -> float:
    """Seconds of CPU that a process has used, user and system, all its threads, no children.

    Raises:
        psutil.NoSuchProcess: it has ended.
    """
    clock = _clock(process.pid)
    if clock is not None:
        try:
            return time.clock_gettime(clock)
        except OSError:
            pass  # it ended meanwhile, or its clock may not be read: psutil tells which
    times = process.cpu_times()
    return float(times.user + times.system)


def _clock(pid: int) -> int | None:
    if _getcpuclockid is None:
        return None
    found = ctypes.c_int()
    if _getcpuclockid(ctypes.c_int(pid), ctypes.byref(found)) != 0:
        return None
    return found.value
