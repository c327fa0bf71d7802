"""What was registered, kept in a file, so that a server that starts again has it again."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from annotations.terms import Term
from annotations.whole_files import replaced_file
from tpf_server.continuous.engine.errors import RegistrationsError
from tpf_server.continuous.kept_results import KeptResults
from tpf_server.continuous.ownership import TAKEN_OVER, Ownership

_FORMAT: Final = "tpf-server registrations 1"


@dataclass(frozen=True, slots=True)
class Registration:
    """A query as it was registered.

    Args:
        text: as it was sent.
        name: what it is called; ``None`` where the text says.
        semantics: the policy that was asked for, if one was.
        into: the stream that it was to feed, if one was named.
        engine: what was to execute it, if that was said.
    """

    text: str
    name: str | None = None
    semantics: str | None = None
    into: str | None = None
    engine: str | None = None


class Registrations:
    """A file with streams and queries; it is there whole or as it was before.

    Args:
        path: of the file; it need not exist.

    Attributes:
        results: of the queries, kept beside it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ownership = Ownership(path.with_name(f"{path.stem}-owner"))
        self.results = KeptResults(path.with_name(f"{path.stem}-results.json"), self._ownership)

    def take(self) -> tuple[dict[Term, list[str] | None], list[Registration]]:
        """What `load` gives, and from now on nobody who began before keeps anything here.

        Raises:
            RegistrationsError: the file cannot be read, or it is none of these.
        """
        try:
            # What another one keeps before this is read, and what comes later it is refused.
            with self._ownership.taken():
                return self.load()
        except OSError as error:
            raise RegistrationsError(f"{self._path}: {error}") from error

    def load(self) -> tuple[dict[Term, list[str] | None], list[Registration]]:
        """The streams with the predicates that they declare, and queries as they were registered.

        Raises:
            RegistrationsError: the file cannot be read, or it is none of these.
        """
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            if found["format"] != _FORMAT:
                raise ValueError(f"format {found['format']!r}")
            declared = found.get("declared", {})
            streams = {Term(name): declared.get(name) for name in found["streams"]}
            return streams, [Registration(**each) for each in found["queries"]]
        except FileNotFoundError:
            return {}, []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RegistrationsError(f"{self._path}: {error}") from error

    def save(
        self, streams: Mapping[Term, Sequence[str] | None], queries: Iterable[Registration]
    ) -> None:
        """Keep these and no others, durably.

        Args:
            streams: with the predicates that they declare.
            queries: in the order of their registration.

        Raises:
            RegistrationsError: the file cannot be written, or another server has begun with it.
        """
        body: dict[str, Any] = {
            "format": _FORMAT,
            "streams": list(streams),
            "declared": {name: list(each) for name, each in streams.items() if each is not None},
            "queries": [asdict(each) for each in queries],
        }
        try:
            with self._ownership.held() as mine:
                if not mine:
                    raise RegistrationsError(f"{self._path}: {TAKEN_OVER}")
                with replaced_file(self._path) as file:
                    json.dump(body, file, indent=1)
        except OSError as error:
            raise RegistrationsError(f"{self._path}: {error}") from error
