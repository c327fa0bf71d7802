"""Options in groups: one parameter of a command for what several commands have in common."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

_EMPTY = inspect.Parameter.empty


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: a parameter whose type is a data class stands for its fields.

    Args:
        command: a function with typer's annotations; its parameters are given by name. A field
            without a default is an option that must be given.
    """
    own = inspect.signature(command).parameters
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: hints[name]
        for name in own
        if isinstance(hints[name], type) and is_dataclass(hints[name])
    }
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in own.items():
        if name not in groups:
            parameters[name] = _parameter(name, hints[name], parameter.default)
            continue
        types = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            parameters[field.name] = _parameter(field.name, types[field.name], _default(field))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            of_group = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**of_group)
        command(**values)

    # Typer reads these instead of those of the command.
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _default(field: "Field[Any]") -> Any:
    return _EMPTY if field.default is MISSING else field.default
