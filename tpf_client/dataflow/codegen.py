"""Compile generated Python, and keep its text readable in tracebacks and debuggers."""

import itertools
import linecache
import weakref
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

_numbers = itertools.count(1)


def compiled(source: str, name: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Return the function `name` of generated source that sees these names."""
    file = f"<generated {name} {next(_numbers)}>"
    # A code of its own: CPython adapts it to the names that it meets.
    function = FunctionType(_in_file(function_code(source, name), file), dict(names), name)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    weakref.finalize(function, linecache.cache.pop, file, None).atexit = False
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
