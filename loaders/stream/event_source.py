"""Server-sent events into a spool, resumed by ``Last-Event-ID``, without repetitions."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Self

import paho.mqtt.client as mqtt
import requests
import urllib3
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from annotations.event_reader import EventReader, ServerEvent, event_headers
from annotations.whole_files import replaced_file
from annotations.wording import user_agent
from loaders.errors import InputError, SettingError
from loaders.fetching import MAX_MESSAGE, host_parts
from loaders.stream.spool import Spool
from tpf_server.store.static.http_files import reason_of

_PREFIX = "sse+"
_CHUNK = 1 << 16
_TIMEOUT = (10.0, 120.0)
"""Seconds until a connection stands, and between two bytes."""
_RETRY = 3.0
_START_SECONDS = 30.0
_MAY_PASS = frozenset({408, 425, 429})


class Receiver(ABC):
    """Writes what arrives to the spool, from entry to exit."""

    what: ClassVar[str]

    def __init__(self, shown: str, spool: Spool, troubled: Callable[[str], None]) -> None:
        self._shown = shown
        self._spool = spool
        self._troubled = troubled
        self._leaving = threading.Event()
        self._settled = threading.Event()
        self._failure: BaseException | None = None

    @abstractmethod
    def _start(self) -> None:
        """Begin to receive, in another thread, which sets `_settled`."""

    def check(self) -> None:
        """Raise an `InputError` if no more will come."""
        if self._failure is not None:
            reason = f"{self.what} are no longer received ({self._failure})"
            raise InputError(reason, self._shown)

    def __enter__(self) -> Self:
        self._start()
        self._settled.wait(_START_SECONDS)
        if self._failure is not None:
            self.__exit__()
            raise InputError(str(self._failure), self._shown)
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()


class EventFollower(Receiver):
    """Write a URL's events to the spool; reconnect and resume."""

    what = "events"

    def __init__(
        self,
        url: str,
        kind: str | None,
        spool: Spool,
        home: Path,
        troubled: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._url = url.removeprefix(_PREFIX)
        parts = host_parts(self._url)
        is_web = parts is not None and parts.scheme in ("http", "https")
        if parts is None or not is_web or not url.startswith(_PREFIX):
            raise SettingError(f"not the URL of events (sse+http://HOST/…): {url!r}")
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        super().__init__(shown, spool, troubled)
        self._kind = kind
        self._memory = home / "last-event-id"
        self._connected_once = False
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def _start(self) -> None:
        self._thread.start()

    def _follow(self) -> None:
        retry = _RETRY
        reported = False
        try:
            with requests.Session() as session:
                session.headers["User-Agent"] = user_agent("tpf-load")
                while not self._leaving.is_set():
                    reader = EventReader(MAX_MESSAGE)
                    try:
                        for event in self._events(session, reader):
                            self._take(event)
                            reported = False
                    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as e:
                        if not self._connected_once:
                            raise InputError(reason_of(e)) from None
                        if not reported:
                            self._troubled(f"{self._shown}: {reason_of(e)}; connecting again")
                            reported = True
                    retry = reader.retry if reader.retry is not None else retry
                    self._leaving.wait(max(retry, 0.01))
        except Exception as error:
            # A thread that ends is noticed by `check`.
            self._failure = error
            if not isinstance(error, InputError):
                raise
        finally:
            self._settled.set()

    def _events(self, session: requests.Session, reader: EventReader) -> Iterator[ServerEvent]:
        last = self._memory.read_text(encoding="utf-8") if self._memory.exists() else None
        headers = event_headers(last)
        with session.get(self._url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
            if answer.status_code >= 500 or answer.status_code in _MAY_PASS:
                raise requests.ConnectionError(f"HTTP {answer.status_code}")
            if answer.status_code == 204:
                raise InputError("the server says that there are no more events")
            if not answer.ok:
                raise InputError(f"HTTP {answer.status_code} {answer.reason}")
            kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if kind != "text/event-stream":
                raise InputError(f"no server-sent events, but {kind or 'nothing that has a type'}")
            self._connected_once = True
            self._settled.set()
            while not self._leaving.is_set() and (
                content := answer.raw.read1(_CHUNK, decode_content=True)
            ):
                try:
                    yield from reader.feed(content)
                except ValueError as error:
                    raise InputError(str(error)) from error

    def _take(self, event: ServerEvent) -> None:
        if self._kind in (None, event.name):
            again = event.id is not None
            landed = self._spool.land_surely(
                event.id or "", event.data.encode(), again, self._leaving, self._troubled
            )
            if not landed:
                return
        if event.id is not None:
            with replaced_file(self._memory, durable=False) as file:
                file.write(event.id)


# MQTT messages into a spool, acknowledged once durable, without repetitions.


class Subscriber(Receiver):
    """Write a topic's messages to the spool."""

    what = "messages"

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
        super().__init__(f"mqtt://{self._host}:{self._port}", spool, troubled)
        self._topic = topic
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=False,
            manual_ack=True,
        )
        if parts.username:
            self._client.username_pw_set(parts.username, parts.password)
        self._client.on_connect = self._connected
        self._client.on_subscribe = self._answered
        self._client.on_message = self._arrived

    def _connected(self, client: mqtt.Client, *_: object) -> None:
        client.subscribe(self._topic, qos=1)

    def _answered(
        self, _client: mqtt.Client, _data: object, _mid: int, codes: list[ReasonCode], *_: object
    ) -> None:
        for code in codes:
            if code.is_failure:
                self._failure = InputError(f"the broker refuses the topic: {code}")
        self._settled.set()

    def _arrived(self, client: mqtt.Client, _: object, message: mqtt.MQTTMessage) -> None:
        # The broker does not send again what is not acknowledged until the connection breaks; and
        # an exception would end this thread, which nobody would notice.
        try:
            if self._spool.land_surely(
                message.topic, message.payload, message.dup, self._leaving, self._troubled
            ):
                client.ack(message.mid, message.qos)
        except Exception as error:
            self._failure = error
            raise

    def _start(self) -> None:
        try:
            self._client.connect(self._host, self._port)
        except (OSError, ValueError) as error:  # that it is no name of a host is a ValueError
            raise InputError(f"no broker answers ({error})", self._shown) from error
        self._client.loop_start()
        if not self._settled.wait(_START_SECONDS):
            self._failure = InputError("the broker did not subscribe")
            self._settled.set()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._client.disconnect()
        self._client.loop_stop()
