"""Tables of settings: how a row is written, and which values fit it."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from annotations.seconds import MOST_SECONDS, is_seconds
from tpf_server.errors import SettingsError

_TOKEN = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_WEB_IRI = re.compile(r"https?://[^\x00-\x20<>\"{}|\\^`]+")
_PREFIX = re.compile(r"(?:[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?)?")
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|\\^`]*")


def setting(default: Any, help_text: str) -> Any:
    """A row: a field of a dataclass that is a table."""
    return dataclasses.field(default=default, metadata={"help": help_text})


class SettingRow(NamedTuple):
    """One row of a table of settings."""

    name: str
    type: Any
    default: Any
    help: str


def table(kind: type[Any]) -> Iterator[SettingRow]:
    """The rows of a table of settings."""
    types = get_type_hints(kind)
    for row in dataclasses.fields(kind):
        default = row.default if row.default is not dataclasses.MISSING else None
        yield SettingRow(row.name, types[row.name], default, row.metadata["help"])


def check_token(name: str, token: str) -> None:
    """Check that a token can be sent.

    Raises:
        SettingsError: it cannot.
    """
    if token and not _TOKEN.fullmatch(token):
        raise SettingsError(
            f"{name} could never match: a token is ASCII, without control characters, and without "
            "blanks at its ends"
        )


def check_prefixes(where: str, prefixes: Mapping[str, str]) -> None:
    """Check names and IRIs of prefixes.

    Args:
        where: how an error begins.
        prefixes: IRIs by names.

    Raises:
        SettingsError: one is none.
    """
    for name, namespace in prefixes.items():
        # They are written into pages as they are.
        if not _PREFIX.fullmatch(name):
            raise SettingsError(f"{where}no name of a prefix: {name!r}")
        if not _IRI.fullmatch(namespace):
            raise SettingsError(f"{where}prefix {name} stands for no IRI: {namespace!r}")


def check_types(settings: Any) -> None:
    """Check that the values of a table are of the types that its rows say.

    Raises:
        SettingsError: one is not.
    """
    for row in table(type(settings)):
        value = getattr(settings, row.name)
        if not _fits(value, row.type):
            raise SettingsError(f"{row.name} is {_name(row.type)}, not {value!r}")


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(value, option) for option in get_args(kind))
    if kind is float:
        # All of them are times.
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and is_seconds(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    origin = get_origin(kind) or kind
    if not isinstance(value, origin):
        return False
    items = value.values() if isinstance(value, dict) else value if origin is tuple else ()
    return all(isinstance(item, str) for item in items)


def _name(kind: Any) -> str:
    if isinstance(kind, UnionType):
        return " or ".join(_name(option) for option in get_args(kind) if option is not type(None))
    seconds = f"a number of seconds, at most {MOST_SECONDS:.12g}"
    names = {bool: "true or false", int: "a number", float: seconds, str: "a text"}
    return names.get(kind, "a list of texts" if get_origin(kind) is tuple else "a table of texts")


def is_web_iri(text: str) -> bool:
    """Whether a text is an ``http`` or ``https`` IRI."""
    return _WEB_IRI.fullmatch(text) is not None
