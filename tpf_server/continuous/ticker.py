"""Lets stream time pass with the clock, also where no elements come."""

import logging
import threading
from datetime import timedelta
from typing import Final

from annotations.clock import Clock
from tpf_server.continuous.service import ContinuousService

_log: Final = logging.getLogger(__name__)
INTERVAL: Final = timedelta(milliseconds=100)


class Ticker:
    """Tells a service the time in a fixed interval.

    Args:
        service: whose windows are to close in time.
        clock: what is waited on.
        interval: between two looks at the clock.
    """

    def __init__(
        self, service: ContinuousService, clock: Clock, interval: timedelta = INTERVAL
    ) -> None:
        self._service = service
        self._clock = clock
        self._interval = interval
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin, in a thread that ends with the process."""
        threading.Thread(target=self.run, name="stream time", daemon=True).start()

    def stop(self) -> None:
        """End at the next look."""
        self._stopped.set()

    def run(self) -> None:
        """Do it until `stop`; an error is logged, once as long as it stays the same."""
        said = ""
        while self._clock.wait_until(self._clock.now() + self._interval, self._stopped):
            try:
                self._service.advance()
                said = ""
            except Exception as error:  # noqa: BLE001 - time would stand still for good
                if repr(error) != said:
                    said = repr(error)
                    _log.exception("the time of streams cannot be told")
