"""Read settings: a TOML file < environment (``TPF_SERVER_PAGE_SIZE``) < flag (``--page-size``)."""

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from tpf_server.errors import SettingsError
from tpf_server.settings import DatasetSettings, SettingRow, Settings, table

ENVIRONMENT_PREFIX = "TPF_SERVER_"
AT_START = (
    "host", "port", "workers", "access_log", "continuous", "followers",
    "followers_per_address", "change_followers", "body_timeout", "idle_timeout",
    "declare", "csparql_engine",
    "rspql_report", "rspql_tick", "spark_master", "spark_work",
    "join_routing", "stream_kernel", "widen_steps", "remote", "remote_interval", "allow_service",
    "allow_streams", "source_interval",
)  # fmt: skip
"""Settings of the server that a reload does not change."""
REMOVED: Final = dict.fromkeys(
    ("query", "query_seconds", "query_rows", "query_memory"),
    "the page at /query/ is always there, and evaluates queries in the browser; for SPARQL over "
    "HTTP, run tpf-query serve with the URLs of the datasets",
)
"""Settings that there were: what replaces each."""
_Kind = TypeVar("_Kind", Settings, DatasetSettings)


def settings_help() -> str:
    """Return the text of ``--help-settings``."""
    lines = []
    for heading, kind in (("Server", Settings), ("[datasets.NAME]", DatasetSettings)):
        lines.append(f"{heading}:")
        for row in table(kind):
            default = "" if row.default in (None, "", ()) else f" (default {_show(row.default)})"
            lines.append(f"  {row.name:<16} {row.help}{default}")
    lines.append("A TOML file < environment TPF_SERVER_NAME < flag --name;")
    lines.append("lists, tables and what is set for a dataset: in the file alone.")
    return "\n".join(lines)


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return "all"
    return str(value).lower() if isinstance(value, bool) else str(value)


class Configuration(NamedTuple):
    """The settings of a server and of its datasets."""

    server: Settings
    datasets: tuple[DatasetSettings, ...]

    def reloaded_by(self, started: Settings) -> "Configuration":
        """Return the same for a running server: settings that count at start only stay."""
        kept = {name: getattr(started, name) for name in AT_START}
        return self._replace(server=dataclasses.replace(self.server, **kept))

    def to_json(self) -> str:
        return json.dumps(
            [dataclasses.asdict(self.server), *map(dataclasses.asdict, self.datasets)]
        )

    @classmethod
    def from_json(cls, text: str) -> "Configuration":
        server, *datasets = json.loads(text)
        return cls(
            _build(Settings, server, "setting"),
            tuple(_build(DatasetSettings, entry, "setting") for entry in datasets),
        )


def read_configuration(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> Configuration:
    """Merge the sources: file < environment < flags; ``None`` is a flag that was not given."""
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"{file}: {error}") from error
    datasets = values.pop("datasets", {})
    rows = {row.name: row for row in table(Settings)}
    for name, text in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            setting = name.removeprefix(ENVIRONMENT_PREFIX).lower()
            if setting not in rows:
                why = REMOVED.get(setting, "there is no such setting")
                raise SettingsError(f"environment variable {name}: {why}")
            values[setting] = _parse(rows[setting], text)
    values |= {name: value for name, value in flags.items() if value is not None}
    if not isinstance(datasets, dict) or not all(isinstance(t, dict) for t in datasets.values()):
        raise SettingsError("datasets is not a table of tables: write [datasets.NAME]")
    return Configuration(
        _build(Settings, values, "setting"),
        tuple(
            _build(DatasetSettings, {"name": name, **entry}, f"setting of dataset {name}")
            for name, entry in datasets.items()
        ),
    )


def _build(kind: type[_Kind], values: Mapping[str, Any], what: str) -> _Kind:
    rows = {row.name: row for row in table(kind)}
    for name in values:
        if kind is Settings and name in REMOVED:
            raise SettingsError(f"{name} is no setting any more: {REMOVED[name]}")
        if name not in rows:
            raise SettingsError(f"there is no {what} {name!r}; see --help-settings")
    fields: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in values.items()
    }
    for secret in ("publish_token", "token"):
        # Workers get the token; nobody reads the file again before the settings are reloaded.
        if file := fields.pop(f"{secret}_file", ""):
            if fields.get(secret):
                raise SettingsError(f"give {secret} or {secret}_file, not both")
            fields[secret] = _secret(f"{secret}_file", file)
    return kind(**fields)


def _secret(setting: str, file: Any) -> str:
    try:
        secret = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise SettingsError(f"{setting}: {error}") from error
    if not secret:
        raise SettingsError(f"{setting}: {file} is empty")
    return secret


def _parse(row: SettingRow, text: str) -> Any:
    if row.type is bool:
        if text.lower() not in ("true", "false", "1", "0", "on", "off"):
            raise SettingsError(f"{row.name} is true or false, not {text!r}")
        return text.lower() in ("true", "1", "on")
    if row.type in (int, float):
        try:
            return row.type(text)
        except ValueError:
            raise SettingsError(f"{row.name} is a number, not {text!r}") from None
    if row.type is str:
        return text
    raise SettingsError(f"{row.name} can only be set in the file")
