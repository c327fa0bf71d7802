"""How long a response may be reused, on the server's clock.

Source: RFC 9111 sections 4.2 (freshness) and 5.2.2 (response directives), for a private cache.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime


def http_date(text: str | None) -> datetime | None:
    """An HTTP date in UTC; ``None`` where it is absent or malformed (then it does not count)."""
    if not text:
        return None
    try:
        value = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def directives(text: str | None) -> dict[str, str]:
    """The directives of a ``Cache-Control`` field: lower-case names, values without quotes."""
    result: dict[str, str] = {}
    for item in (text or "").split(","):
        name, _, value = item.strip().partition("=")
        if name:
            result.setdefault(name.strip().lower(), value.strip().strip('"'))
    return result


def lifetime(headers: Mapping[str, str]) -> timedelta:
    """For how long the response is fresh from its ``Date`` on; zero where nothing is said.

    No heuristic freshness: a page that says nothing is asked again.
    """
    control = directives(headers.get("Cache-Control"))
    if "no-store" in control or "no-cache" in control:
        return timedelta(0)
    if "max-age" in control:
        seconds = control["max-age"]
        return timedelta(seconds=min(int(seconds), 10**9) if seconds.isdecimal() else 0)
    expires, date = http_date(headers.get("Expires")), http_date(headers.get("Date"))
    if expires is not None and date is not None:
        return max(expires - date, timedelta(0))
    return timedelta(0)


def age(headers: Mapping[str, str]) -> timedelta:
    """How long caches on the way have held the response (its ``Age`` field)."""
    text = headers.get("Age", "").strip()
    return timedelta(seconds=min(int(text), 10**9) if text.isdecimal() else 0)
