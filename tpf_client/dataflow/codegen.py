"""Compile generated Python, and keep its text readable in tracebacks and debuggers."""

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
    """Return the function `name` of generated source that sees these names."""
    file = f"<generated {name} {next(_numbers)}>"
    # A code of its own: CPython adapts it to the names that it meets.
    function = FunctionType(_in_file(function_code(source, name), file), dict(names), name)
    _texts[file] = source
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    weakref.finalize(function, _forget, file).atexit = False
    return function


@lru_cache(maxsize=1024)
def function_code(source: str, name: str) -> CodeType:
    """Return the code of the function `name` of a source text, cached."""
    module = compile(source, f"<generated {name}>", "exec")
    (code,) = (
        each for each in module.co_consts if isinstance(each, CodeType) and each.co_name == name
    )
    return code


def _in_file(code: CodeType, file: str) -> CodeType:
    inner = (_in_file(c, file) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(inner))


def _forget(file: str) -> None:
    _texts.pop(file, None)
    linecache.cache.pop(file, None)


def sources() -> dict[str, str]:
    """Return the text of every live generated function, by name."""
    return dict(_texts)


def dump(directory: Path) -> int:
    """Write every live generated function to its own file; return their number."""
    directory.mkdir(parents=True, exist_ok=True)
    functions = sources()
    for file, source in functions.items():
        (directory / f"{file.strip('<>').replace(' ', '-')}.py").write_text(
            source + "\n", encoding="utf-8"
        )
    return len(functions)
