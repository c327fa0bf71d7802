"""Send batches to a server: facts to ``{dataset}/facts``, or elements to a stream.

Repeated batch identifiers are ignored, so unanswered requests are repeated, ten times in all.
"""

import random
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from threading import Event
from typing import Final

import requests

from annotations.clock import Clock
from annotations.instants import format_instant, to_micros
from annotations.labels import Expiration, Label
from annotations.terms import Quad
from annotations.wording import bearer
from loaders.errors import PublishRefusedError, ServerUnreachableError, SettingError
from loaders.fetching import host_parts, retry_after
from loaders.outputs import line_of
from tpf_server.store.static.http_files import reason_of

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_SECONDS: Final = 30.0
"""To wait for an answer."""
_FIRST_PAUSE: Final = timedelta(seconds=0.1)
_LONGEST_PAUSE: Final = timedelta(seconds=15)

_STREAM: Final = re.compile(r"/streams/([^/]+|[A-Za-z][A-Za-z0-9+.-]*:.+)/?\Z")


class Publisher:
    """Publishes labelled facts to a dataset, or elements to a stream.

    A quad becomes an element at its label's start; its end is left to windows. With `withdraw`,
    facts are taken back.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        token: str | None = None,
        session: requests.Session | None = None,
        attempts: int = 10,
        *,
        media_type: str = "application/n-quads",
        withdraw: bool = False,
    ) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self._clock = clock
        self._session = session or requests.Session()
        self._owns_session = session is None
        self._is_stream = is_stream(url)
        self._target = self.url if self._is_stream else f"{self.url}/facts"
        self._method = "DELETE" if withdraw else "POST"
        kind = "text/tab-separated-values" if self._is_stream else media_type
        self._headers = {"Content-Type": kind}
        self._authorize = None if token is None else bearer(token)
        self._attempts = attempts
        self._jitter = random.Random(url)  # noqa: S311 - spreads retries, keeps no secret

    def publish(
        self, quads: tuple[Quad, ...], label: Label, batch_id: str, cancelled: Event | None = None
    ) -> int:
        """Send a batch; return the number of requests once acknowledged.

        Raises:
            PublishRefusedError: the server refuses the batch for good.
            ServerUnreachableError: all attempts failed.
            SettingError: the URL is malformed.
        """
        if not self._is_stream:
            body = "".join(f"{line_of(quad)}\n" for quad in quads)
            return self.publish_body(body.encode(), label, batch_id, cancelled)
        if label.start is None:
            raise SettingError("elements of a stream begin at an instant: label with intervals")
        body = "".join(element_lines(label.start, quads))
        return self._send(body.encode(), {"batch": batch_id}, cancelled)

    def publish_body(
        self, body: bytes, label: Label | None, batch_id: str, cancelled: Event | None = None
    ) -> int:
        """Send a document with one label, or an annotated one without."""
        parameters = {"batch": batch_id}
        if isinstance(label, Expiration):
            parameters["expiration"] = format_instant(label.end)
        elif label is not None:
            parameters["initial"] = format_instant(label.start)
            parameters["final"] = format_instant(label.end)
        return self._send(body, parameters, cancelled)

    def _send(self, body: bytes, parameters: dict[str, str], cancelled: Event | None) -> int:
        problem = ""
        for attempt in range(1, self._attempts + 1):
            pause = min(_FIRST_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE)
            pause *= self._jitter.uniform(0.8, 1.0)
            try:
                response = self._session.request(
                    self._method,
                    self._target,
                    params=parameters,
                    data=body,
                    headers=self._headers,
                    auth=self._authorize,
                    timeout=_SECONDS,
                    # A redirected request would become a GET.
                    allow_redirects=False,
                )
            except ValueError as error:  # also of requests
                raise SettingError(f"cannot send to {self.url!r}: {reason_of(error)}") from None
            except requests.RequestException as error:
                problem = reason_of(error)
            else:
                if 200 <= response.status_code < 300:
                    return attempt
                if response.status_code not in _RETRIED:
                    raise PublishRefusedError(response.status_code, self._refusal(response))
                problem = f"it answers {response.status_code} {response.reason}"
                pause = max(pause, retry_after(response.headers, self._clock.now()))
            if attempt < self._attempts and not self._clock.wait(pause, cancelled):
                break
        raise ServerUnreachableError(
            f"{self.url} did not take a batch in {attempt} attempts: {problem}"
        )

    def close(self) -> None:
        """Close the connections that this publisher opened."""
        if self._owns_session:
            self._session.close()

    def _refusal(self, response: requests.Response) -> str:
        if 300 <= response.status_code < 400:
            return (
                f"{self.url} is elsewhere: {response.headers.get('Location', 'nobody says where')}"
            )
        reason = response.text.strip().splitlines()[0][:300] if response.text.strip() else ""
        if response.headers.get("Content-Type", "").startswith("application/problem+json"):
            with suppress(ValueError, AttributeError, RecursionError):
                problem = response.json()
                reason = str(problem.get("detail") or problem.get("title") or reason)
        hint = {
            401: " (give the token of the server: --token)",
            403: " (is this the token of the server?)",
            404: " (is this the URL of a dataset that takes facts, or of a stream?)",
            405: " (does this server take facts? see its setting publish_token)",
        }.get(response.status_code, "")
        return f"{self.url} refused a batch: {response.status_code} {reason}{hint}".rstrip()


def element_lines(at: datetime, quads: Iterable[Quad]) -> Iterator[str]:
    """Yield lines ``ts_ms<TAB>s<TAB>p<TAB>o``: milliseconds since 1970 and N-Triples terms."""
    millis = to_micros(at) // 1000
    return (f"{millis}\t{q.subject}\t{q.predicate}\t{q.object}\n" for q in quads)


def is_stream(url: str) -> bool:
    """True for ``…/streams/{name}``."""
    parts = host_parts(url)
    return parts is not None and _STREAM.search(parts.path) is not None
