"""``python -m tests`` lists, by folder, the tests that are about more than one module.

A test file is about the module of its path, or about its folder, as its first line says.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("annotations", "experiments", "loaders", "tpf_client", "tpf_server")


def test_files() -> Iterator[tuple[Path, Path]]:
    """Return test files of the packages, and the paths of their modules."""
    for package in PACKAGES:
        for file in sorted((ROOT / "tests" / package).rglob("test_*.py")):
            folder = file.parent.relative_to(ROOT / "tests")
            yield file, ROOT / folder / file.name.removeprefix("test_")


def subject(file: Path) -> str:
    """The first line of what a test file says of itself."""
    said = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return said.partition("\n")[0]


def themes() -> dict[Path, list[Path]]:
    """The test files without a module of their name, by folder."""
    found: dict[Path, list[Path]] = {}
    for file, module in test_files():
        if not module.is_file() and not module.with_suffix("").is_dir():
            found.setdefault(file.parent, []).append(file)
    return found


if __name__ == "__main__":
    for folder, files in themes().items():
        print(folder.relative_to(ROOT))  # noqa: T201
        for file in files:
            print(f"  {file.name}: {subject(file)}")  # noqa: T201
