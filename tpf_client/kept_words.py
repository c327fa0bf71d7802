"""What the editor of the page completes: the words of the datasets, looked up now and then."""

import json
import threading
from datetime import datetime, timedelta

from annotations.instants import FIRST, shifted
from tpf_client.client import Client
from tpf_client.streaming.streamer import Budgets

KEPT = timedelta(minutes=10)
"""How long they are taken for the present ones."""


class KeptWords:
    """The words of a client's datasets as JSON. Thread-safe.

    Args:
        client: who reads them.
        budgets: gives what reading them may take.
    """

    def __init__(self, client: Client, budgets: Budgets) -> None:
        self._client = client
        self._budgets = budgets
        self._lock = threading.Lock()
        self._until: datetime = FIRST
        self._body = b""

    def body(self) -> bytes:
        """An object with ``predicates`` and ``classes``, IRIs, what occurs most often first.

        Raises:
            ClientError: they could not be read.
        """
        with self._lock:
            now = self._client.clock.now()
            if now >= self._until:
                with self._budgets() as budget:
                    words = self._client.words(budget)
                told = {"predicates": words.predicates, "classes": words.classes}
                self._body = json.dumps(told, ensure_ascii=False).encode()
                self._until = shifted(now, KEPT)
            return self._body
