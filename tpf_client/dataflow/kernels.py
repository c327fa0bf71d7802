"""Which kernel keeps ranked groups: the one in C, where it was built, or the operators."""

import os
import zlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, cast, get_args

from tpf_client.dataflow.state.ranked_groups import RankedState, Ranking

Kernel = Literal["compiled", "off"]
KERNELS: Final[tuple[Kernel, ...]] = get_args(Kernel)
VARIABLE: Final = "LIVE_LINKED_DATA_KERNEL"
_MODULE: Final = "tpf_client.dataflow.state._ranked_groups"
_SOURCE: Final = Path(__file__).with_name("state") / "_ranked_groups.c"
_WITHOUT: Final = "the package was built without a compiler"
_STALE: Final = "what was compiled is of another version: build the package again"


@cache
def compiled_groups() -> Callable[[Ranking], RankedState] | None:
    """The class in C; ``None`` where there is none that was compiled of its source as it is."""
    try:
        module = import_module(_MODULE)
    except ImportError:
        return None
    if _SOURCE.exists() and getattr(module, "SOURCE", None) != zlib.crc32(_SOURCE.read_bytes()):
        return None
    return cast("Callable[[Ranking], RankedState]", module.RankedGroups)


def why_not_compiled() -> str | None:
    """What an explanation says where `compiled_groups` is ``None``; else ``None``."""
    if compiled_groups() is not None:
        return None
    try:
        import_module(_MODULE)
    except ImportError:
        return _WITHOUT
    return _STALE


def kernel_in_use(wanted: Kernel | None = None) -> Kernel:
    """The kernel that is used.

    Args:
        wanted: ``compiled`` is ``off`` where there is none; ``off``: operators only. Without it the
            environment says it.

    Raises:
        ValueError: there is no such kernel.
    """
    found = kernel_asked(wanted)
    if found == "compiled" and compiled_groups() is None:
        return "off"
    return found


def kernel_asked(wanted: Kernel | None = None) -> Kernel:
    """The kernel that is asked for, whether there is one or not; see `kernel_in_use`."""
    found = wanted or os.environ.get(VARIABLE) or "compiled"
    if found not in KERNELS:
        raise ValueError(f"{VARIABLE}: {found!r} is none of {', '.join(KERNELS)}")
    return found


def ranked_groups(ranking: Ranking) -> RankedState:
    """Ranked groups, empty; only where `kernel_in_use` is ``compiled``."""
    made = compiled_groups()
    assert made is not None
    return made(ranking)
