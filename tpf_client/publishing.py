"""Publish facts to a dataset from Python: ``POST {dataset}/facts``."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

from annotations.clock import Clock, SystemClock
from annotations.instants import format_instant
from annotations.seconds import check_seconds
from annotations.wording import bearer
from tpf_client.errors import ConnectionFailedError, HttpError, ParseError, check_argument
from tpf_client.sparql.results import python_term

if TYPE_CHECKING:
    import rdflib
    import requests

Facts: TypeAlias = "str | rdflib.Graph | Iterable[Sequence[object]]"
"""N-Quads, a graph or dataset of rdflib, or triples and quads of its terms and of Python values."""

_ATTEMPTS: Final = 8
_RETRIED: Final = (408, 425, 429, 500, 502, 503, 504)
_SECONDS: Final = 30.0
_LONGEST_WAIT: Final = 300
"""Seconds that a server may have us wait before an attempt."""
_DEFAULT_GRAPH: Final = "urn:x-rdflib:default"
"""The name of the default graph in datasets of rdflib; ``None`` in some of its versions."""


def publish(
    url: str,
    facts: Facts,
    *,
    expires_in: float | timedelta | None = None,
    valid: tuple[datetime, datetime] | None = None,
    token: str | None = None,
    session: "requests.Session | None" = None,
    clock: Clock | None = None,
) -> dict[str, Any]:
    """Publish facts as one batch: readers see all of it, or nothing.

    A request that is not answered is sent again, under the same name, so that nothing is published
    twice.

    Args:
        url: the dataset.
        facts: with one of the labels below, or each annotated in the dataset's way.
        expires_in: seconds for which they hold from now on.
        valid: from when until when they hold, where the dataset has intervals.
        token: the token of the server for publishing.
        session: a requests session to use; its adapters decide whether requests are sent again.
        clock: the clock that `expires_in` goes by.

    Returns:
        The answer of the server: ``sequence``, the number of the batch, and what changed.

    Raises:
        HttpError: the server refuses the batch; the message says why.
        ParseError: something else than the server answers.
        ConnectionFailedError: the server does not answer, however often it is asked.
        ValueError: both `expires_in` and `valid` are given, or seconds out of range.
        TypeError: facts, or terms in them, of another type.
        TermError: a term that cannot be written.
    """
    import requests

    from tpf_client.fragments.transport import cause

    check_argument("url", url, str)
    check_argument("token", token, str)
    check_argument("facts", facts, str, Iterable)
    check_argument("valid", valid, tuple)
    if valid is not None and len(valid) != 2:
        raise TypeError("valid: from when, and until when")
    for instant in valid or ():
        check_argument("valid", instant, datetime)
    if expires_in is not None and valid is not None:
        raise ValueError("facts expire, or hold in an interval: give expires_in or valid")
    if isinstance(expires_in, timedelta):
        expires_in = expires_in.total_seconds()
    check_seconds(expires_in=expires_in)
    parameters = {"batch": f"python-{uuid4()}"}
    if expires_in is not None:
        end = (clock or SystemClock()).now() + timedelta(seconds=expires_in)
        parameters["expiration"] = format_instant(end)
    if valid is not None:
        parameters["initial"], parameters["final"] = map(format_instant, valid)
    target = f"{url.rstrip('/')}/facts"
    body = _n_quads(facts).encode()
    own = session is None
    session = _session() if session is None else session
    try:
        response = session.post(
            target,
            params=parameters,
            data=body,
            headers={"Content-Type": "application/n-quads"},
            auth=None if token is None else bearer(token),
            timeout=_SECONDS,
            allow_redirects=False,  # it would become a GET
        )
    except requests.RequestException as error:
        raise ConnectionFailedError(target, cause(error)) from error
    finally:
        if own:
            session.close()
    if not 200 <= response.status_code < 300:
        raise HttpError(target, response.status_code, _reason(response))
    try:
        answer: dict[str, Any] = response.json()
    except (ValueError, RecursionError) as error:
        raise ParseError(target, "the answer is not JSON") from error
    return answer


def _session() -> "requests.Session":
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    retry = Retry(
        _ATTEMPTS - 1,
        backoff_factor=0.25,
        backoff_max=15,
        status_forcelist=_RETRIED,
        allowed_methods=None,
        raise_on_status=False,
        retry_after_max=_LONGEST_WAIT,
    )
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


def _n_quads(facts: Facts) -> str:
    if isinstance(facts, str):
        return facts
    return "".join(f"{' '.join(map(python_term, _checked(fact)))} .\n" for fact in facts)


def _checked(fact: object) -> Sequence[object]:
    if not isinstance(fact, tuple | list) or len(fact) not in (3, 4):
        raise TypeError(f"neither a triple nor a quad: {fact!r}")
    in_default = len(fact) == 4 and str(fact[3]) in ("None", _DEFAULT_GRAPH)
    return fact[:3] if in_default else fact


def _reason(response: "requests.Response") -> str:
    """The words of the server: of a problem document its detail, else the first line."""
    try:
        problem = response.json()
        return str(problem["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return (response.text.strip().splitlines() or [response.reason])[0][:300]
