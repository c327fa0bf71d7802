"""Generated Python: the one place that compiles it, and where its text can be read.

Hot paths are functions that are written for one plan: routes of joins, indexes, arithmetic, rows of
results. Their text is made from column numbers, names of this package and constants that are passed
as values, never from the text of a query or a stream. A traceback through one shows its line, a
debugger its source, and `dump` writes out all that there are.

Plans of queries that differ in constants only have the same text, so that it is compiled once.
"""

import itertools
import linecache
import weakref
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

_numbers = itertools.count(1)
_texts: dict[str, str] = {}


def compiled(source: str, name: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The function `name` of generated source text that sees these names.

    `linecache` has its text under the name of its file, as long as the function is there.
    """
    file = f"<generated {name} {next(_numbers)}>"
    # A code of its own: CPython adapts it to the names that it meets.
    function = FunctionType(_in_file(function_code(source, name), file), dict(names), name)
    _texts[file] = source
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    weakref.finalize(function, _forget, file).atexit = False
    return function


@lru_cache(maxsize=1024)
def function_code(source: str, name: str) -> CodeType:
    """The code of the function `name` of a source text, kept for the next one that wants it."""
    module = compile(source, f"<generated {name}>", "exec")
    (code,) = (
        each for each in module.co_consts if isinstance(each, CodeType) and each.co_name == name
    )
    return code


def _in_file(code: CodeType, file: str) -> CodeType:
    """A copy that says it is from this file, with what is defined inside."""
    inner = (_in_file(c, file) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(inner))


def _forget(file: str) -> None:
    _texts.pop(file, None)
    linecache.cache.pop(file, None)


def sources() -> dict[str, str]:
    """The text of every generated function that is in use, by the name that tracebacks have."""
    return dict(_texts)


def dump(directory: Path) -> int:
    """Write every generated function that is in use to a file of its own; how many there are."""
    directory.mkdir(parents=True, exist_ok=True)
    found = sources()
    for file, source in found.items():
        (directory / f"{file.strip('<>').replace(' ', '-')}.py").write_text(
            source + "\n", encoding="utf-8"
        )
    return len(found)
