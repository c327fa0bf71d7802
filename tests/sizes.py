"""``python -m tests.sizes`` prints how large each package is, beside what the architecture states.

A line of code is a line that is not blank, not a comment and not a part of a docstring.
"""

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.__main__ import PACKAGES, ROOT

STATED = ROOT / "docs" / "architecture.md"
"""Its table of sizes: a row for each package, ``| `name` | code | modules |``."""
_ROW = re.compile(r"^\| `(\w+)` \| ([\d,]+) \| ([\d,]+) \|", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Size:
    """Lines of code, modules and words of docstrings."""

    code: int
    modules: int
    words: int


def docstrings(tree: ast.Module) -> list[ast.Constant]:
    """The docstrings of a module, its classes and its functions."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, documented)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
        and isinstance(node.body[0].value.value, str)
    ]


def measure(folder: Path) -> Size:
    """The size of all Python files below a folder."""
    code = modules = words = 0
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text("utf-8")
        documentation = docstrings(ast.parse(text))
        skipped = {
            line
            for each in documentation
            for line in range(each.lineno, (each.end_lineno or 0) + 1)
        }
        code += sum(
            1
            for number, line in enumerate(text.splitlines(), 1)
            if number not in skipped and line.strip() and not line.lstrip().startswith("#")
        )
        modules += 1
        words += sum(len(str(each.value).split()) for each in documentation)
    return Size(code, modules, words)


def single_importers() -> int:
    """Count the modules outside tests that exactly one other module imports."""
    names = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
    }
    importers = defaultdict(set)
    for name, file in names.items():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            imported: list[str] = []
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported = [f"{node.module}.{alias.name}" for alias in node.names]
                imported = [each if each in names else node.module for each in imported]
            for each in imported:
                if each in names and each != name:
                    importers[each].add(name)
    return sum(len(each) == 1 for each in importers.values())


def stated() -> dict[str, tuple[int, int]]:
    """Return the lines and modules that the architecture page states for each package."""
    rows = _ROW.findall(STATED.read_text("utf-8"))
    return {name: (_number(code), _number(modules)) for name, code, modules in rows}


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _words(files: list[Path]) -> int:
    return sum(len(file.read_text("utf-8").split()) for file in files)


def _lines(pattern: str) -> int:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob(pattern)]
    return sum(1 for file in files for line in file.read_text("utf-8").splitlines() if line.strip())


def report() -> list[str]:
    """Return the table: packages, sum, and other budgets."""
    known = stated()
    rows = [f"{'':14}{'code':>8}{'stated':>9}{'modules':>9}{'stated':>8}{'docstring words':>17}"]
    sizes = [measure(ROOT / package) for package in PACKAGES]
    total = Size(*(sum(getattr(size, field) for size in sizes) for field in Size.__slots__))
    for name, size in [*zip(PACKAGES, sizes, strict=True), ("all", total)]:
        code, modules = known.get(name, (0, 0))
        rows.append(
            f"{name:14}{size.code:8,}{code:9,}{size.modules:9,}{modules:8,}{size.words:17,}"
        )
    tests = measure(ROOT / "tests")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    rows += [
        f"{'tests':14}{tests.code:8,}{'':9}{tests.modules:9,}",
        f"modules that one other imports: {single_importers():,}; C: {_lines('*.c'):,} lines; "
        f"words in README and docs: {_words(pages):,}",
    ]
    return rows


if __name__ == "__main__":
    print("\n".join(report()))  # noqa: T201
