"""Builds what is not Python with the package: the part in C, and Python for the page's browser.

The first needs a compiler, the second an npm registry; the package works without either.
`python hatch_build.py` builds it beside its source; with a directory it goes there, and what
follows are further options of the compiler.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
SOURCE = ROOT / "tpf_client" / "dataflow" / "state" / "_ranked_groups.c"
# A machine with a compiler can do as if it had none.
SWITCH = "LIVE_LINKED_DATA_COMPILE"
# A machine without a network need not try.
RUNTIME_SWITCH = "LIVE_LINKED_DATA_PAGE"


def built_kernel(directory: Path, more: Sequence[str] = ()) -> Path:
    """Compile the extension into a directory.

    Args:
        directory: where to put it.
        more: options of the compiler.

    Returns:
        The file.

    Raises:
        OSError, subprocess.SubprocessError: there is no compiler, or it cannot.
    """
    said = sysconfig.get_config_var
    compiler = os.environ.get("CC") or said("CC")
    if os.name != "posix" or not compiler:
        raise OSError("no C compiler is known")
    target = directory / SOURCE.with_suffix(".so").name
    new = target.with_name(f"{target.name}.{os.getpid()}")
    linking = shlex.split(said("LDSHARED") or "cc -shared")[1:]
    command = [
        *shlex.split(compiler),
        *(each for each in linking if not each.startswith("-L") and each != "-pthread"),
        *("-O2", "-std=c11", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"),
        # See `tpf_client.dataflow.state.ranked_groups`.
        f"-DSOURCE={zlib.crc32(SOURCE.read_bytes())}L",
        # Which processors, on macOS.
        *shlex.split(os.environ.get("ARCHFLAGS", "")),
        *more,
        *(str(SOURCE), "-o", str(new)),
    ]
    try:
        subprocess.run(  # noqa: S603 (the compiler of this Python, or of who builds)
            command, check=True, capture_output=True, text=True, timeout=300
        )
        # In one step: who has the old one open keeps it.
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    return target


def tried_kernel() -> Path | None:
    """The extension beside its source; ``None``, with a line that says so, where it cannot be.

    Then there is no older one either, which might do something else.
    """
    if os.environ.get(SWITCH) == "off":
        reason = f"{SWITCH}=off"
    else:
        try:
            return built_kernel(SOURCE.parent)
        except subprocess.CalledProcessError as error:
            lines = (error.stderr or "").strip().splitlines()
            reason = next((each for each in lines if "error" in each), f"{error.returncode}")
        except (OSError, subprocess.SubprocessError) as error:
            reason = str(error)
    for stale in SOURCE.parent.glob(f"{SOURCE.stem}.*so"):
        stale.unlink()
    sys.stderr.write(f"live-linked-data: without its part in C, so slower: {reason}\n")
    return None


def put_runtime(quality: int) -> bool:
    """Fetch Python for browsers, or take it from the user's cache; whether it is there.

    Args:
        quality: of its compression, up to 11.
    """
    if os.environ.get(RUNTIME_SWITCH) == "off":
        sys.stderr.write(f"live-linked-data: without Python for its page: {RUNTIME_SWITCH}=off\n")
        return False
    # From here, with the standard library alone: nothing of it need be installed while it is built.
    sys.path.insert(0, str(ROOT))
    from tpf_client.page_runtime import put_runtime as put

    return put(quality)


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:
    pass
else:

    class KernelHook(BuildHookInterface[Any]):
        """Adds the extension and Python for browsers to a wheel, where they can be had."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """See hatchling."""
            if self.target_name == "sdist":
                return
            # What is given to others is worth a minute of compressing.
            if put_runtime(9 if version == "editable" else 11):
                build_data["artifacts"].append("tpf_client/page/runtime/*")
            kernel = tried_kernel()
            if kernel is not None:
                build_data["artifacts"].append(str(kernel.relative_to(ROOT)))
                build_data["pure_python"] = False
                # It is loaded as a library, not imported: it fits every Python here.
                platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
                build_data["tag"] = f"py3-none-{platform}"


if __name__ == "__main__":
    if sys.argv[1:]:
        built_kernel(Path(sys.argv[1]), sys.argv[2:])
    else:
        tried_kernel()
