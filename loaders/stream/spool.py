"""Messages in a spool directory, each as one file, for the streaming job to read.

A file leaves the spool when its micro-batch is complete. Which files those are is written down
before that, so that a crash leaves nothing behind that nobody would remove.
"""

import hashlib
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
    """Files with one message each, named so that they sort by arrival.

    `directory` has those that are to be read.

    Args:
        home: where the spool is kept.
        suffix: ends the names; tells the format of the messages.
        clock: names files.
        remembered: how many messages that were read are kept.
    """

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
        """Write a message; ``None`` where it came `again` and is or was there already."""
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
        """Write a message, again and again until there is room for it; whether it was.

        Args:
            topic: of the message.
            payload: what it says.
            again: whether it may have been written before.
            leaving: ends the trying.
            troubled: told, once, that it cannot be written.
        """
        told = False
        while True:
            try:
                self.land(topic, payload, again)
            except OSError as error:
                if not told:
                    troubled(f"{self.directory}: {error.strerror or error}; trying again")
                    told = True
                if leaving.wait(_PAUSE_SECONDS):
                    return False
            else:
                return True

    def batch_done(self, number: int, names: Sequence[str]) -> None:
        """These files were published; those of all micro-batches before will not be read again.

        Args:
            number: of the micro-batch; a repeated one has the number that it had.
            names: of its files.
        """
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
