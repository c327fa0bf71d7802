"""Follow servers' change signals (``tmp:changes``): one connection for each dataset."""

import json
import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from tpf_client.errors import SourceError
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher

Heard: TypeAlias = Callable[[bool, frozenset[str] | None], object]
"""Told whether changes are being told now, and which predicates changed; ``None``: perhaps any."""

TIMEOUT: Final = 25.0
"""Seconds of silence after which a connection counts as lost: servers of ours say something every
ten."""
_log = logging.getLogger(__name__)
_PAUSES: Final = (1.0, 2.0, 5.0, 15.0, 60.0)
_LONGEST: Final = 2**20
"""Characters of an event."""


class ChangeSignals:
    """The change signals that a client's queries follow. Thread-safe."""

    def __init__(self, fetcher: ThreadedFetcher) -> None:
        self._fetcher = fetcher
        self._lock = threading.Lock()
        self._signals: dict[str, _Signal] = {}
        self._closed = False

    def follow(self, url: str, heard: Heard) -> Callable[[], None]:
        """Call `heard`, in a thread of its own, with signals of a URL; return what ends that."""
        with self._lock:
            signal = self._signals.get(url)
            if signal is None or signal.over:
                signal = _Signal(self._fetcher, url)
                if not self._closed:
                    threading.Thread(target=signal.run, name="tpf-signal", daemon=True).start()
                # Only now: one whose thread could not be started would tell nothing to anybody.
                self._signals[url] = signal
            signal.add(heard)

        def end() -> None:
            with self._lock:
                signal.remove(heard)

        return end

    def close(self) -> None:
        with self._lock:
            self._closed = True
            signals = list(self._signals.values())
        for each in signals:
            each.close()


class _Signal:
    def __init__(self, fetcher: ThreadedFetcher, url: str) -> None:
        self._fetcher = fetcher
        self._url = url
        self._heard: list[Heard] = []
        self._last: str | None = None
        self._lock = threading.Lock()
        self._up = False
        self._end = threading.Event()

    @property
    def over(self) -> bool:
        return self._end.is_set()

    def add(self, heard: Heard) -> None:
        with self._lock:
            self._heard.append(heard)
            if self._up:
                # What was read before may have changed before this.
                heard(True, None)

    def remove(self, heard: Heard) -> None:
        if heard in self._heard:
            self._heard.remove(heard)
        if not self._heard:
            self._end.set()

    def close(self) -> None:
        self._end.set()

    def run(self) -> None:
        failures = 0
        while not self.over:
            failures += 1
            try:
                self._listen()
                failures = 0
            except SourceError as error:
                _log.debug("changes at %s ended", self._url, exc_info=error)
            except Exception as error:  # noqa: BLE001 - who follows would go on to believe it
                _log.warning("changes at %s could not be read", self._url, exc_info=error)
            if self._up:
                failures = min(failures, 1)
                self._tell(frozenset(), up=False)
            self._end.wait(_PAUSES[min(failures, len(_PAUSES) - 1)])

    def _listen(self) -> None:
        for event in self._fetcher.events(self._url, self._last, TIMEOUT, self._end, _LONGEST):
            # Where nobody knows what was missed, all is looked at.
            first = self._last is None
            if event.id is not None:
                self._last = event.id or None
            self._tell(None if first else _predicates(event.data))

    def _tell(self, predicates: frozenset[str] | None, *, up: bool = True) -> None:
        with self._lock:
            self._up = up
            for heard in tuple(self._heard):
                heard(up, predicates)


def _predicates(data: str) -> frozenset[str] | None:
    try:
        predicates = json.loads(data)["predicates"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(predicates, list):
        return None
    return frozenset(f"<{each}>" for each in predicates)
