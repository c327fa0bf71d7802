"""Tables and trees in comments and docstrings keep their form."""

import re
from collections.abc import Iterator

import pytest

from tests.__main__ import PACKAGES, ROOT

_RULE = re.compile(r"[# ]*=+(?: +=+)+ *")
_BRANCH = re.compile(r"[^\s#│].*[├└]──")


def broken_lines(text: str) -> Iterator[int]:
    """Return the numbers of lines that do not fit the columns of their table, or their tree."""
    rule, opened = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if _BRANCH.match(line.lstrip("# ")):
            yield number
        if _RULE.fullmatch(line):
            if rule and line != rule:
                yield number
            rule, opened = ("" if rule else line), number
        elif rule:
            gaps = range(rule.index("="), min(len(rule), len(line)))
            if any(rule[at] == " " != line[at] for at in gaps):
                yield number
    if rule:
        yield opened


@pytest.mark.parametrize("package", PACKAGES)
def test_tables_in_code(package: str) -> None:
    files = (ROOT / package).rglob("*.py")
    assert {f"{file}:{n}" for file in files for n in broken_lines(file.read_text("utf-8"))} == set()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("# ==  ===\n# a   b c\n#     d\n# ==  ===\n# ├── x", []),
        ("==  ===\na b  c\n==  ===\n", [2]),
        ("==  ===\na   b\n", [1]),
        ("A ├── B\n└── C", [1]),
    ],
)
def test_what_is_broken(text: str, numbers: list[int]) -> None:
    assert list(broken_lines(text)) == numbers
