"""MQTT messages into a spool, acknowledged once durable, without repetitions."""

import threading
from collections.abc import Callable
from typing import Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from loaders.errors import InputError, SettingError
from loaders.fetching import host_parts
from loaders.stream.spool import Spool


class Subscriber:
    """Write a topic's messages to the spool."""

    def __init__(
        self,
        url: str,
        topic: str,
        spool: Spool,
        client_id: str,
        troubled: Callable[[str], None] = lambda _: None,
    ) -> None:
        parts = host_parts(url)
        if parts is None or parts.scheme != "mqtt":
            raise SettingError(f"not the URL of a broker (mqtt://HOST[:PORT]): {url!r}")
        self._host, self._port = parts.hostname or "", parts.port or 1883
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
        try:
            spool, again = self._spool, message.dup
            if not spool.land_surely(
                message.topic, message.payload, again, self._leaving, self._troubled
            ):
                return
            client.ack(message.mid, message.qos)
        except Exception as error:
            self._failure = error
            raise

    def check(self) -> None:
        """Check that messages are still received."""
        if self._failure is not None:
            raise InputError(
                f"messages are no longer received ({self._failure})",
                f"mqtt://{self._host}:{self._port}",
            )

    def __enter__(self) -> Self:
        try:
            self._client.connect(self._host, self._port)
        except (OSError, ValueError) as error:  # that it is no name of a host is a ValueError
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
