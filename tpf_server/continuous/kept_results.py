"""What queries emitted last, kept from a server that stops for the one that is started next."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from annotations.whole_files import make_durable, replaced_file
from tpf_server.continuous.engine.errors import RegistrationsError
from tpf_server.continuous.ownership import TAKEN_OVER, Ownership

_log = logging.getLogger(__name__)
_FORMAT: Final = "tpf-server results 1"
Positions: TypeAlias = Mapping[str, tuple[int, int | None]]
"""By the names of queries: the last emission that was pushed to another server, and the last one of
a batch that perhaps was."""


@dataclass(frozen=True, slots=True)
class KeptLog:
    """The emissions of a query that were kept when its server stopped.

    Args:
        begin: the number before that of its first emission.
        last: the number of its last one.
        events: the latest of these: numbers, how many rows each has, and their texts.
    """

    begin: int
    last: int
    events: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """A batch of elements that came with an identifier.

    Args:
        stream: to which it was pushed.
        batch: its identifier.
        accepted: how many of its elements were taken.
        dropped: see `Receipt`.
        late: see `Receipt`.
    """

    stream: str
    batch: str
    accepted: int
    dropped: int
    late: int


class KeptResults:
    """A file that is written once, when a server stops, and read once, when the next one starts.

    Numbers of emissions go on where the last server ended. So what is read is gone: it would be
    wrong after a server that could not write it when it ended.

    Args:
        path: of the file; it need not exist.
        ownership: of this and of what belongs to it; only who has it reads and writes.
    """

    def __init__(self, path: Path, ownership: Ownership) -> None:
        self._path = path
        self._ownership = ownership

    def take(self) -> tuple[dict[str, KeptLog], list[KeptBatch], Positions]:
        """What was kept, as it was given to `save`; nothing the next time.

        Raises:
            RegistrationsError: the file cannot be read or removed, or it is none of these.
        """
        try:
            with self._ownership.held() as mine:
                if not mine:
                    _log.warning("results are not taken up: %s: %s", self._path, TAKEN_OVER)
                    return {}, [], {}
                found = json.loads(self._path.read_text(encoding="utf-8"))
                self._path.unlink()
                make_durable(self._path.parent)
            if found["format"] != _FORMAT:
                raise ValueError(f"format {found['format']!r}")
            logs = {
                name: KeptLog(each["begin"], each["last"], tuple(map(tuple, each["events"])))
                for name, each in found["queries"].items()
            }
            pushed = {
                name: (last, until) for name, (last, until) in found.get("pushed", {}).items()
            }
            return logs, [KeptBatch(*each) for each in found["batches"]], pushed
        except FileNotFoundError:
            return {}, [], {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RegistrationsError(f"{self._path}: {error}") from error

    def save(
        self, logs: Mapping[str, KeptLog], batches: list[KeptBatch], pushed: Positions
    ) -> None:
        """Keep these, durably; where that fails it is said, and the server stops all the same.

        Args:
            logs: by the names of queries.
            batches: that were taken.
            pushed: how far the emissions of queries were pushed to other servers.
        """
        body: dict[str, Any] = {
            "format": _FORMAT,
            "queries": {
                name: {"begin": each.begin, "last": each.last, "events": each.events}
                for name, each in logs.items()
            },
            "batches": [
                (each.stream, each.batch, each.accepted, each.dropped, each.late)
                for each in batches
            ],
            "pushed": pushed,
        }
        try:
            with self._ownership.held() as mine:
                if not mine:
                    _log.warning("results are not kept: %s: %s", self._path, TAKEN_OVER)
                    return
                with replaced_file(self._path) as file:
                    json.dump(body, file)
        except OSError as error:
            _log.warning("results are not kept: %s: %s", self._path, error)
