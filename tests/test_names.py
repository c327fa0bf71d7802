"""Public names are unique, and no function is written twice."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import PurePath

from tests.__main__ import PACKAGES, ROOT

_OPERATIONS = (
    # A query says what an operator then does.
    ("tpf_client.sparql.algebra", "tpf_client.dataflow.operators."),
    # Spark does to columns and frames what Python does to terms and patterns.
    ("annotations.", "tpf_server.continuous.spark."),
    ("tpf_client.sparql.rewrite.", "tpf_server.continuous.spark."),
    # A rule does to operator graphs what is done to patterns elsewhere.
    ("tpf_client.sparql.rewrite.", "tpf_server.continuous.runtime.instants.rules"),
)
"""Where one operation has one name for two kinds of things."""
_OF_EACH_STUDY = {"Sizes"}
"""The configuration of a run knows them by these names."""
_OF_EACH_PROGRAM = {"app", "factory", "main"}
"""What a program begins with."""
_ONE_IDEA = {"Solution", "stop"}
"""A row of identifiers inside, terms by the names of their variables for who asks; ending."""
_LONG = 16
"""Nodes of a function that is no triviality."""


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Return the statements of a module, also inside conditions."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from statements([*statement.body, *statement.orelse])
        if isinstance(statement, ast.Try):
            yield from statements(inner for each in statement.handlers for inner in each.body)


def defined(statement: ast.stmt) -> list[str]:
    """Return the names of a statement, but for commands."""
    match statement:
        case ast.ClassDef():
            return [statement.name]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [] if is_command(statement) else [statement.name]
        case ast.Assign():
            targets = statement.targets
        case ast.AnnAssign():
            targets = [statement.target]
        case _:
            return []
    if isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) == "TypeVar":
        return []  # it stands for anything
    names = [node for target in targets for node in ast.walk(target)]
    return [each.id for each in names if isinstance(each, ast.Name)]


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True for a command."""
    decorators = [ast.unparse(each).partition("(")[0] for each in function.decorator_list]
    return any(each in ("grouped", "app.command") for each in decorators)


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """The modules of the packages."""
    return [
        (".".join(file.relative_to(ROOT).with_suffix("").parts), ast.parse(file.read_text("utf-8")))
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
    ]


def twice(found: Iterable[tuple[str, str]]) -> Mapping[str, set[str]]:
    """The modules of each name that several have."""
    modules = defaultdict(set)
    for name, module in found:
        modules[name].add(module)
    return {name: places for name, places in modules.items() if len(places) > 1}


def is_one_thing(name: str, places: set[str]) -> bool:
    """True if all uses of the name are the same object."""
    if name in _OF_EACH_PROGRAM | _ONE_IDEA:
        return True
    if name in _OF_EACH_STUDY:
        return all(each.startswith("experiments.studies.") for each in places)
    # Packages of one kind have modules of one name: cqels.parser.parse, csparql.parser.parse.
    paths = [PurePath(*each.split(".")) for each in places]
    if len({(path.name, path.parent.parent) for path in paths}) == 1:
        return True
    return len(places) == 2 and any(
        all(any(each.startswith(prefix) for each in places) for prefix in pair)
        for pair in _OPERATIONS
    )


def test_a_name_means_one_thing() -> None:
    found = [
        (name, module)
        for module, tree in trees()
        for statement in statements(tree.body)
        for name in defined(statement)
        if not name.startswith("_")
    ]
    assert len(found) > 2000
    clashes = {
        name: sorted(places)
        for name, places in twice(found).items()
        if not is_one_thing(name, places)
    }
    assert clashes == {}


def long_functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Return the body of each function without docstring, and its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if sum(1 for each in body for _ in ast.walk(each)) >= _LONG:
                yield "\n".join(map(ast.dump, body)), node.lineno


def test_no_function_is_written_twice() -> None:
    found = [
        (text, f"{module}:{line}")
        for module, tree in trees()
        for text, line in long_functions(tree)
    ]
    assert len(found) > 2000
    assert sorted(map(sorted, twice(found).values())) == []
