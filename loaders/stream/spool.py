"""Messages in a spool directory, one file each, until their micro-batch is complete.

The list of a micro-batch is written first, so that a crash leaves no files behind.
"""

import hashlib
import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from annotations.clock import Clock
from annotations.instants import to_micros
from annotations.whole_files import replaced_file, replaced_path

REMEMBERED = 1000
"""How many messages that were read are kept to recognise duplicates. A broker sends again only what
was in flight when the connection broke, which by default is 20 messages at most."""
_PAUSE_SECONDS = 1.0
"""How long to wait for room on the disk."""


class Spool:
    """Files of messages, named to sort by arrival."""

    def __init__(self, home: Path, suffix: str, clock: Clock, remembered: int = REMEMBERED) -> None:
        self.directory = home / "spool"
        self._read = home / "spool-read"
        self._batches = home / "spool-batches"
        self._suffix = suffix
        self._clock = clock
        self._remembered = remembered
        self._last = 0
        for directory in (self.directory, self._read, self._batches):
            directory.mkdir(parents=True, exist_ok=True)
        for unfinished in self.directory.glob(".*"):
            unfinished.unlink()

    def land(self, topic: str, payload: bytes | bytearray, again: bool) -> Path | None:
        """Write a message; ``None`` for a repetition."""
        digest = hashlib.blake2b(topic.encode() + b"\n" + payload, digest_size=16).hexdigest()
        if again and any(
            True
            for directory in (self.directory, self._read)
            for _ in directory.glob(f"[0-9]*-{digest}.*")
        ):
            return None
        self._last = max(to_micros(self._clock.now()), self._last + 1)
        target = self.directory / f"{self._last:020}-{digest}.{self._suffix}"
        try:
            with replaced_path(target) as aside:
                aside.write_bytes(payload)
        except OSError:
            # Where only its directory cannot be made durable, which some file systems cannot, it is
            # there and may have been read: written again it would be another message.
            if not target.exists():
                raise
        return target

    def land_surely(
        self,
        topic: str,
        payload: bytes | bytearray,
        again: bool,
        leaving: threading.Event,
        troubled: Callable[[str], None],
    ) -> bool:
        """Write a message, retrying until there is room; return success."""
        for attempt in itertools.count():
            try:
                self.land(topic, payload, again)
                return True
            except OSError as error:
                if not attempt:
                    troubled(f"{self.directory}: {error.strerror or error}; trying again")
            if leaving.wait(_PAUSE_SECONDS):
                break
        return False

    def batch_done(self, number: int, names: Sequence[str]) -> None:
        """Note a micro-batch's files; remove those of earlier ones."""
        for earlier in self._batches.iterdir():
            if earlier.name.isdigit() and int(earlier.name) < number:
                for name in earlier.read_text(encoding="utf-8").splitlines():
                    if (file := self.directory / name).exists():
                        file.replace(self._read / name)
                earlier.unlink()
        for old in sorted(self._read.iterdir())[: -self._remembered]:
            old.unlink()
        with replaced_file(self._batches / str(number), durable=False) as listed:
            listed.write("\n".join(names))
