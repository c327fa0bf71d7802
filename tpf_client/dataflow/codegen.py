"""Generated Python: the one place that compiles it, and where its text can be read.

Hot paths are functions that are written for one plan: routes of joins, indexes, arithmetic, rows of
results. Their text is made from column numbers, names of this package and constants that are passed
as values, never from the text of a query or a stream. A traceback through one shows its line, a
debugger its source, and `dump` writes out all that there are.
"""

import itertools
import linecache
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

_numbers = itertools.count(1)
_texts: dict[str, str] = {}


def compiled(source: str, name: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The function `name` of generated source text that sees these names.

    `linecache` has its text under the name of its file, as long as the function is there.
    """
    space = dict(names)
    file = f"<generated {name} {next(_numbers)}>"
    exec(compile(source, file, "exec"), space)  # noqa: S102 - see above
    # It does not call itself: so it is gone as soon as nobody has it.
    function: Callable[..., Any] = space.pop(name)
    _texts[file] = source
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    weakref.finalize(function, _forget, file).atexit = False
    return function


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
