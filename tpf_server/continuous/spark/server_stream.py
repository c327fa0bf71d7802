"""Push the triples of a query on Spark to a stream of a server, a micro-batch per request.

Its identifier makes a repeated batch count once.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from annotations.wording import bearer
from tpf_server.continuous.runtime.errors import ContinuousError
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer

_RETRIES: Final = Retry(
    total=5, backoff_factor=0.2, status_forcelist=(429, 503), allowed_methods=None,
    raise_on_status=False,
)  # fmt: skip
_HEADERS: Final = {"Content-Type": "application/x-ndjson"}
_TIMEOUT: Final = 30.0
"""Seconds."""


class ServerStream:
    """Push to ``POST /streams/{name}``, by default with retries."""

    def __init__(
        self, url: str, token: str | None = None, *, session: requests.Session | None = None
    ) -> None:
        if session is None:
            session = requests.Session()
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=_RETRIES))
        self.repeated = 0
        self._url = url
        self._session = session
        self._authorize = None if token is None else bearer(token)

    def write(self, batch: str, answers: Sequence[PeriodicAnswer]) -> None:
        """Push the triples of a micro-batch; those of an instant are one element."""
        lines = [
            json.dumps({"timestamp": answer.at, "triples": answer.rows}, ensure_ascii=False)
            for answer in answers
            if answer.rows
        ]
        if not lines:
            return
        body = "\n".join(lines).encode()
        try:
            response = self._session.post(
                self._url, body, params={"batch": batch}, headers=_HEADERS, timeout=_TIMEOUT,
                auth=self._authorize, allow_redirects=False,
            )  # fmt: skip
        except requests.RequestException as error:
            raise ContinuousError(f"{self._url} cannot be reached: {error}") from error
        # Other servers answer, too.
        with suppress(ValueError, TypeError, KeyError):
            if response.status_code in (200, 201):
                self.repeated += bool(response.json()["repeated"])
                return
        raise ContinuousError(
            f"{self._url} refused batch {batch}: {response.status_code} {response.text[:500]}"
        )
