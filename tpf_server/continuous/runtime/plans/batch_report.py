"""Explain how a query takes batches of records."""

import os
from collections.abc import Sequence
from typing import Any, Final

from tpf_server.continuous.runtime.semantics import KERNELS, Kernel

KERNEL_VARIABLE: Final = "LIVE_LINKED_DATA_KERNEL"

OFF: Final = "it is switched off"
WITHOUT: Final = "the package was built without a compiler, or for another version of itself"
REORDERED: Final = "elements wait for late ones, and are put in order one by one"
EVERY: Final = "what has answers at every arrival is evaluated by operators in Python"
OTHERWISE: Final = (
    "only aggregates of groups (COUNT, MEDIAN), the first of which are shown, are one state"
)
OTHERS: Final = "another query of the engine takes records one by one"
UNFIT: Final = (
    "operators in Python took records of the last batch: some are ordered by terms that are no "
    "numbers, or have values that are not exact here"
)
AT_INSTANTS: Final = "what is evaluated at instants is evaluated by operators in Python"


def batch_report(
    kernel: Kernel, operators: Sequence[str] = (), reason: str | None = None
) -> dict[str, Any]:
    """Describe the state of a query while records come in batches."""
    report: dict[str, Any] = {"kernel": kernel, "operators": list(operators)}
    return report if reason is None else {**report, "reason": reason}


def kernel_asked(kernel: Kernel | None = None) -> Kernel:
    """Return the kernel to use, by default that of the environment."""
    chosen = kernel or os.environ.get(KERNEL_VARIABLE) or "compiled"
    for each in KERNELS:
        if each == chosen:
            return each
    raise ValueError(f"{KERNEL_VARIABLE}: {chosen!r} is none of {', '.join(KERNELS)}")
