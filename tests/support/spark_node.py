"""A file system of its own for a node of a cluster, then its program; see `spark_cluster`.

Run inside a new mount namespace: ``spark_node.py PLACE KEPT… -- PROGRAM ARGUMENTS…``. The system
and KEPT can be read; ``/tmp`` is PLACE.
"""

import os
import subprocess
import sys
from pathlib import Path

_SYSTEM = ("usr", "lib", "lib32", "lib64", "bin", "sbin", "etc", "opt")


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def _read_only(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _mount("--rbind", source, target)
    # Flags that were set by somebody with more rights must be repeated.
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    flags = [line.split()[5] for line in lines if line.split()[4] == str(target)][-1]
    kept = [flag for flag in flags.split(",") if flag != "rw"]
    _mount("-o", ",".join(["remount", "bind", *kept, *([] if "ro" in kept else ["ro"])]), target)


def main(place: Path, kept: list[str], program: list[str]) -> None:
    """Build the file system, enter it, and become the program."""
    root = place.with_name(f"{place.name}.root")
    root.mkdir()
    _mount("-t", "tmpfs", "none", root)
    for name in _SYSTEM:
        source = Path("/", name)
        if source.is_symlink():
            (root / name).symlink_to(source.readlink())
        elif source.is_dir():
            _read_only(source, root / name)
    for name in ("proc", "dev"):
        (root / name).mkdir()
        _mount("--rbind", Path("/", name), root / name)
    _mount("-t", "tmpfs", "none", root / "dev" / "shm")
    (root / "tmp").mkdir()
    (root / "var" / "tmp").mkdir(parents=True)
    _mount("--bind", place, root / "tmp")
    for text in sorted({each for path in kept for each in (path, os.path.realpath(path))}):
        if not (root / text[1:]).exists():
            _read_only(Path(os.path.realpath(text)), root / text[1:])
    os.chroot(root)
    os.chdir("/tmp")
    os.execvp(program[0], program)


if __name__ == "__main__":
    split = sys.argv.index("--")
    main(Path(sys.argv[1]), sys.argv[2:split], sys.argv[split + 1 :])
