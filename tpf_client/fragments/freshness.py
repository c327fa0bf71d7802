"""Freshness of responses, on the server's clock.

Source: RFC 9111 sections 4.2 and 5.2.2, for a private cache; W3C Server Timing.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

_LONG: Final = 10**9
"""Seconds: about thirty years."""
_MADE: Final = re.compile(r"made;dur=([0-9]{1,9}(?:\.[0-9]{1,9})?)(?:[,;]|$)")


def read_http_date(text: str | None) -> datetime | None:
    """Parse an HTTP date; ``None`` if absent or malformed."""
    if not text:
        return None
    from email.utils import parsedate_to_datetime

    try:
        value = parsedate_to_datetime(text[:100])
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def whole_number(text: str) -> int | None:
    """Parse a number up to 10^18; ``None`` if malformed."""
    if not (text.isascii() and text.isdecimal()):
        return None
    return min(int(text.lstrip("0")[:19] or "0"), 10**18)


def directives(text: str | None) -> dict[str, str]:
    """Parse ``Cache-Control``: lower-case names, values without quotes."""
    result: dict[str, str] = {}
    for item in (text or "").split(","):
        name, _, value = item.strip().partition("=")
        if name:
            result.setdefault(name.strip().lower(), value.strip().strip('"'))
    return result


def lifetime(headers: Mapping[str, str]) -> timedelta:
    """Return the freshness from ``Date`` on, without heuristics."""
    control = directives(headers.get("Cache-Control"))
    if "no-store" in control or "no-cache" in control:
        return timedelta(0)
    if "max-age" in control:
        return timedelta(seconds=min(whole_number(control["max-age"]) or 0, _LONG))
    expires, date = read_http_date(headers.get("Expires")), read_http_date(headers.get("Date"))
    if expires is not None and date is not None:
        return max(expires - date, timedelta(0))
    return timedelta(0)


def made_before(headers: Mapping[str, str]) -> timedelta | None:
    """Return how long before its answer a page was made (``Server-Timing``), if it says so."""
    match = _MADE.match(headers.get("Server-Timing", "")[:100])
    return timedelta(milliseconds=float(match[1])) if match else None


def age(headers: Mapping[str, str]) -> timedelta:
    """Return how long caches have held the response (``Age``)."""
    return timedelta(seconds=min(whole_number(headers.get("Age", "").strip()) or 0, _LONG))


def from_cache(headers: Mapping[str, str]) -> bool:
    """True if a cache on the way had the response (``Age``; ``Cache-Status``, RFC 9211)."""
    return age(headers) > timedelta(0) or "; hit" in headers.get("Cache-Status", "")
