"""What a replay remembers on disk, so that it goes on after a stop: the last acknowledged batch."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from annotations.errors import InstantError
from annotations.instants import format_instant, parse_instant
from annotations.whole_files import replaced_file
from loaders.errors import StateError


@dataclass(frozen=True, slots=True)
class ReplayState:
    """One replay, and how far it is.

    Args:
        replay: what is replayed, whereto and with which labels; a state belongs to one such text.
        run: identifies the run in its batch identifiers; a resumed replay keeps it, so that the
            batch in doubt has the identifier that it had.
        acknowledged: the instant (of the feed) of the last batch that the server has.
    """

    replay: str
    run: str
    acknowledged: datetime | None = None

    def write(self, path: Path) -> None:
        """Write it, whole or not at all.

        Raises:
            StateError: the file cannot be written.
        """
        values = asdict(self)
        if self.acknowledged is not None:
            values["acknowledged"] = format_instant(self.acknowledged)
        try:
            with replaced_file(path) as file:
                json.dump(values, file)
        except OSError as error:
            raise StateError(f"{path}: {error.strerror or error}") from error


def read_state(path: Path, replay: str) -> ReplayState | None:
    """The state in a file; ``None`` where there is no file.

    Raises:
        StateError: it is damaged, or belongs to another replay.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        acknowledged = values["acknowledged"]
        state = ReplayState(
            str(values["replay"]),
            str(values["run"]),
            None if acknowledged is None else parse_instant(acknowledged),
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, InstantError) as error:
        raise StateError(f"{path} is no state of a replay ({error})") from None
    if state.replay != replay:
        raise StateError(f"{path} belongs to another replay: {state.replay}")
    return state
