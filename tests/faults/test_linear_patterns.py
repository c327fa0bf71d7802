"""Our regular expressions take time in proportion to a foreign text.

Every pattern of the packages, kept or compiled in place, runs as its module runs it on long texts
that repeat its repetitions between a match of its beginning and a mismatch. A backtracking pattern
needs 100 times the allowed time and is stopped.
"""

import ast
import importlib
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from annotations import terms
from tpf_client.errors import QueryError
from tpf_client.sparql import tokens
from tpf_client.sparql.parser import parse_query

sre: Any = importlib.import_module("re._parser")
constants: Any = importlib.import_module("re._constants")

ROOT = Path(__file__).parents[2]
PACKAGES = ("annotations", "tpf_client", "tpf_server", "loaders")
LENGTH = 2**15
SECONDS = 0.5
METHODS = {"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}

BOUNDED: dict[str, str] = {
    "tpf_server.sources._SUFFIX": "the name of a file has at most 255 characters",
}
"""Patterns that are not linear, each with what bounds the text that they meet."""


MADE: dict[str, Callable[[], Mapping[str, "re.Pattern[Any]"]]] = {
    "annotations.terms": lambda: {"_blank_label": terms._blank_label()},
    "tpf_client.sparql.tokens": lambda: {
        f"{label}{'_in_ascii' if ascii_only else ''}": compiled
        for ascii_only in (False, True)
        for label, compiled in tokens._patterns(ascii_only=ascii_only)._asdict().items()
    },
}
"""Modules that put patterns together when they are first wanted, with these patterns."""


class Pattern(NamedTuple):
    """A pattern, and the ways in which it is run."""

    name: str
    compiled: "re.Pattern[Any]"
    methods: frozenset[str]


def _modules(package: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / package).glob("**/*.py")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^(import re$|from re import)", text, re.MULTILINE):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts).removesuffix(".__init__"), ast.parse(text)


def _kept(module: Any) -> Iterator[tuple[str, "re.Pattern[Any]"]]:
    for name, value in vars(module).items():
        if isinstance(value, re.Pattern):
            yield name, value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for inner, each in vars(value).items():
                if isinstance(each, re.Pattern):
                    yield inner, each


def _patterns(package: str) -> Iterator[Pattern]:
    for name, tree in _modules(package):
        module = importlib.import_module(name)
        used: dict[str, set[str]] = {}
        inline: list[tuple[int, str, str]] = []
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Attribute) and node.attr in METHODS | {"compile"}):
                continue
            owner = node.value
            named = getattr(owner, "id", getattr(owner, "attr", None))
            if named is not None and named != "re":
                used.setdefault(named, set()).add(node.attr)
        functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        for node in {each: None for function in functions for each in ast.walk(function)}:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = node.func
                if getattr(called.value, "id", None) == "re" and node.args:
                    text = _constant(node.args[0])
                    parts = isinstance(node.args[0], ast.JoinedStr)
                    if text is not None and not (parts and name in MADE):
                        inline.append((node.lineno, called.attr, text))
        kept = {**dict(_kept(module)), **MADE.get(name, dict)()}
        for label, compiled in kept.items():
            kind = label.removesuffix("_in_ascii")
            methods = frozenset(used.get(kind, METHODS - {"sub", "subn", "split", "findall"}))
            yield Pattern(f"{name}.{label}", compiled, methods & METHODS)
        known = {compiled.pattern for compiled in kept.values()}
        for line, method, text in inline:
            if method in METHODS and text not in known:
                yield Pattern(f"{name}:{line}", re.compile(text, re.DOTALL), frozenset({method}))
            elif method == "compile" and text not in known:
                yield Pattern(f"{name}:{line}", re.compile(text), frozenset({"search"}))


def _constant(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "1"
                       for each in node.values)  # fmt: skip
    return None


# ------------------------------------------------------------------ texts made for a pattern


def _sample(tree: Any, pick: int) -> str:
    """Return a short text that matches, as far as that is easily said."""
    return "".join(_one(operator, argument, pick) for operator, argument in tree)


def _one(operator: Any, argument: Any, pick: int) -> str:
    match str(operator):
        case "LITERAL":
            return chr(argument)
        case "NOT_LITERAL":
            return "a" if argument != ord("a") else "b"
        case "ANY":
            return "a"
        case "IN":
            return _member(argument, pick)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, _, inner = argument
            return _sample(inner, pick) * min(max(least, 0), 50)
        case "SUBPATTERN":
            return _sample(argument[-1], pick)
        case "ATOMIC_GROUP":
            return _sample(argument, pick)
        case "BRANCH":
            return _sample(argument[1][pick], pick)
        case _:
            return ""


def _member(items: Any, pick: int) -> str:
    negated = str(items[0][0]) == "NEGATE"
    if negated:
        taken = "".join(_member([item], pick) for item in items[1:])
        return next(c for c in "a0 .é\n<~" if c not in taken)
    operator, argument = items[pick]
    match str(operator):
        case "LITERAL":
            return chr(argument)
        case "RANGE":
            return chr(argument[0])
        case "CATEGORY":
            return {"DIGIT": "1", "SPACE": " ", "WORD": "a"}.get(
                str(argument).removeprefix("CATEGORY_"), "~"
            )
        case _:
            return "a"


def _repeats(tree: Any, before: str, pick: int) -> Iterator[tuple[str, str]]:
    """Return a prefix and a repeated text for each repetition."""
    for operator, argument in tree:
        match str(operator):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                _, most, inner = argument
                if most is constants.MAXREPEAT or most > 50:
                    for body in _bodies(inner, pick):
                        yield before, body
                yield from _repeats(inner, before, pick)
            case "SUBPATTERN":
                yield from _repeats(argument[-1], before, pick)
            case "ATOMIC_GROUP" | "ASSERT" | "ASSERT_NOT":
                inner = argument if str(operator) == "ATOMIC_GROUP" else argument[1]
                yield from _repeats(inner, before, pick)
            case "BRANCH":
                for each in argument[1]:
                    yield from _repeats(each, before, pick)
            case _:
                pass
        before += _one(operator, argument, pick)


def _bodies(tree: Any, pick: int) -> Iterator[str]:
    yield _sample(tree, pick)
    for operator, argument in tree:
        if str(operator) == "BRANCH":
            yield from (_sample(each, pick) for each in argument[1])
        elif str(operator) == "SUBPATTERN":
            yield from _bodies(argument[-1], pick)


def _texts(compiled: "re.Pattern[Any]") -> Iterator[Any]:
    whole = compiled.pattern
    is_bytes = isinstance(whole, bytes)
    tree = sre.parse(whole, compiled.flags & ~re.DEBUG)
    found: dict[str, None] = {}
    # Of each character class the first member, and the last.
    repeats = list(dict.fromkeys((*_repeats(tree, "", -1), *_repeats(tree, "", 0))))
    starts = list(dict.fromkeys(before for before, _ in repeats))
    for before, body in repeats:
        pump = body or "a"
        for text in (pump, pump + "a", before + pump, f"{pump}."):
            long = text * (LENGTH // len(text))
            found[before + long] = None
            found[before + long + "\0"] = None
        for other in starts:
            mixed = (pump + other) * (LENGTH // len(pump + other))
            found[before + mixed + "\0"] = None
    units = ("a", "0", " ", "'", '"', "\\", "<", "_:a", "a.", "..", "{", "é")
    for text in (_sample(tree, 0), _sample(tree, -1), *units):
        if text:
            found[text * (LENGTH // len(text))] = None
    for text in found:
        yield text.encode("utf-8", "replace") if is_bytes else text


def _run(compiled: "re.Pattern[Any]", method: str, text: Any) -> None:
    if method in ("sub", "subn"):
        getattr(compiled, method)(type(text)(), text)
    elif method == "finditer":
        for _ in compiled.finditer(text):
            pass
    else:
        getattr(compiled, method)(text)


class _TooLongError(Exception):
    pass


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _TooLongError


def is_linear(compiled: "re.Pattern[Any]", methods: Any) -> str | None:
    """Return the beginning of a text on which a pattern takes too long, or ``None``."""
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        for text in _texts(compiled):
            for method in methods:
                try:
                    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
                    _run(compiled, method, text)
                except _TooLongError:
                    return f"{method}: {text[:60]!r}"
                finally:
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    return None


def test_the_patterns_are_found() -> None:
    names = {pattern.name for package in PACKAGES for pattern in _patterns(package)}
    assert len(names) >= 60
    assert {"tpf_client.sparql.tokens.other", "annotations.terms._LANGUAGE"} <= names
    assert BOUNDED.keys() <= names


@pytest.mark.parametrize(
    ("evil", "method"),
    [
        (r"(a+)+$", "match"),
        (r"\s+$", "search"),
        (r"[?&][^=&#]*page[^=&#]*=1", "search"),
    ],
)
def test_what_backtracks_is_seen(evil: str, method: str) -> None:
    assert is_linear(re.compile(evil), [method]) is not None


UNITS = [
    "a.", "a-", "a.a.", "1.", "_:a.", ":a.", "'''\\'", '"' * 5, "'", "<a", "a:", "?", "#", "\\",
    "%", ":%4", "@a-", "é", "0e", ".", "a\u0301.", "<\\u00", "'''a''", "a:a.%2", "-a.", " \n#",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_queries_are_read_in_proportion_to_their_length(unit: str) -> None:
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        for head in ("", "SELECT * { ?s ?p ", "SELECT * { ?s ?p '''"):
            signal.setitimer(signal.ITIMER_VIRTUAL, 5 * SECONDS)
            with suppress(QueryError):
                parse_query(head + unit * (2**16 // len(unit)))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("package", PACKAGES)
def test_patterns_are_linear(package: str) -> None:
    slow = {
        pattern.name: is_linear(pattern.compiled, sorted(pattern.methods))
        for pattern in _patterns(package)
        if pattern.name not in BOUNDED
    }
    assert {name: text for name, text in slow.items() if text is not None} == {}
