"""MQTT messages into a spool directory, each as one file, for the streaming job to read.

A message is acknowledged to the broker when its file is on the disk under its final name; so none
is lost in a crash. The broker sends a message again that was not acknowledged, and marks it as a
duplicate: such a one is left out where the spool has, or had, its content.

A file leaves the spool when its micro-batch is complete. Which files those are is written down when
the micro-batch starts, so that a crash leaves nothing behind that nobody would remove.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from annotations.clock import Clock
from annotations.instants import to_micros
from loaders.errors import InputError, SettingError

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
        # Spark does not read names that begin with a dot.
        aside = target.with_name(f".{target.name}")
        try:
            with aside.open("wb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(target)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        return target

    def batch_starts(self, number: int, names: Sequence[str]) -> None:
        """A micro-batch of these files starts; the files of all before it have been read.

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
        aside = self._batches / f".{number}"
        aside.write_text("\n".join(names), encoding="utf-8")
        aside.replace(self._batches / str(number))


class Subscriber:
    """Lands the messages of a topic while the block runs.

    Args:
        url: ``mqtt://HOST[:PORT]``; a user and a password may be in it.
        topic: topic filter; ``+`` and ``#`` as in MQTT.
        spool: where messages go.
        client_id: the broker keeps what this client misses while it is away.
        troubled: told, once, that messages cannot be written; they are tried until they can be.

    Raises:
        SettingError: not such a URL.
        InputError: no broker answers.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        spool: Spool,
        client_id: str,
        troubled: Callable[[str], None] = lambda _: None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "mqtt" or not parts.hostname:
            raise SettingError(f"not the URL of a broker (mqtt://HOST[:PORT]): {url!r}")
        self._host, self._port = parts.hostname, parts.port or 1883
        self._topic = topic
        self._spool = spool
        self._troubled = troubled
        self._subscribed = threading.Event()
        self._leaving = threading.Event()
        self._failure: BaseException | None = None
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=False,
            manual_ack=True,
        )
        if parts.username:
            self._client.username_pw_set(parts.username, parts.password)
        self._client.on_connect = self._connected
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = self._arrived

    def _connected(self, client: mqtt.Client, *_: object) -> None:
        client.subscribe(self._topic, qos=1)

    def _arrived(self, client: mqtt.Client, _: object, message: mqtt.MQTTMessage) -> None:
        # The broker does not send again what is not acknowledged until the connection breaks; and
        # an exception would end this thread, which nobody would notice.
        told = False
        try:
            while True:
                try:
                    self._spool.land(message.topic, message.payload, again=message.dup)
                except OSError as error:
                    if not told:
                        reason = error.strerror or error
                        self._troubled(f"{self._spool.directory}: {reason}; trying again")
                        told = True
                    if self._leaving.wait(_PAUSE_SECONDS):
                        return
                else:
                    break
            client.ack(message.mid, message.qos)
        except Exception as error:
            self._failure = error
            raise

    def check(self) -> None:
        """See to it that messages are still being received.

        Raises:
            InputError: they are not.
        """
        if self._failure is not None:
            raise InputError(
                f"messages are no longer received ({self._failure})",
                f"mqtt://{self._host}:{self._port}",
            )

    def __enter__(self) -> Self:
        try:
            self._client.connect(self._host, self._port)
        except OSError as error:
            raise InputError(
                f"no broker answers ({error})", f"mqtt://{self._host}:{self._port}"
            ) from error
        self._client.loop_start()
        if not self._subscribed.wait(30):
            self.__exit__()
            raise InputError("the broker did not subscribe", f"mqtt://{self._host}:{self._port}")
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._client.disconnect()
        self._client.loop_stop()
