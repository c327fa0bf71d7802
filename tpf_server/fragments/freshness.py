"""How long a page stays true, and how to tell whether it is still the same.

Source: RFC 9111 (caching), RFC 9110 section 8.8 (validators).

A page ends to be true when the next label of a matching fact ends or starts; new facts may come
before that, so the time is bounded by a setting of the dataset. Between two such instants, and as
long as nothing is published, the answer is the same up to the instant that it tells. So its entity
tag has two parts: a digest of all that decides about the rest of the body (the versions of both
stores, the next of those instants, URL, format, settings), and the instant. Equal tags then mean
equal bytes; and a client whose tag has the digest of now holds a page that is still right.
"""

import re
from datetime import datetime
from hashlib import blake2b
from typing import Final

from tpf_server.fragments.fragment import PinnedRequest

_TAG: Final = re.compile(r'"([0-9a-f]{24})(?:\.([0-9a-f]{1,16}))?"')


def max_age(query: PinnedRequest) -> int:
    """Whole seconds for which the answer may be kept, rounded down."""
    seconds = query.endpoint.max_age
    change = query.state.next_change
    # A pinned page never changes.
    if change is not None and query.request.snapshot is None:
        seconds = min(seconds, (change - query.now).total_seconds())
    return max(0, int(seconds))


def kept_until(query: PinnedRequest) -> int | None:
    """The last whole second (Unix time) in which nginx may show an answer whose labels will end.

    nginx counts in whole seconds and shows an answer up to a second longer than ``max-age`` says,
    that is, after its labels have ended; its own header field ``X-Accel-Expires: @TIME`` wins.

    Returns:
        ``None`` where no label ends or starts, so that ``max-age`` is good enough.
    """
    change = query.state.next_change
    if change is None or query.request.snapshot is not None:
        return None
    return min(int(query.now.timestamp()) + max_age(query), int(change.timestamp()) - 1)


def entity_tag(query: PinnedRequest, variant: str) -> str:
    """The strong entity tag of the answer in one format, with its quotation marks.

    Args:
        query: what is answered.
        variant: the format, and the encoding if any.
    """
    snapshot = query.snapshot
    text = f"{query.endpoint.version}\n{variant}\n{query.request.page_url}"
    if snapshot is None:
        return f'"{blake2b(text.encode(), digest_size=12).hexdigest()}"'
    change = query.state.next_change
    text += f"\n{snapshot.sequence}\n{change}\n{query.request.snapshot}"
    return f'"{blake2b(text.encode(), digest_size=12).hexdigest()}.{snapshot.instant:x}"'


def matching_tag(field: str, tag: str) -> str | None:
    """The tag in an ``If-None-Match`` field whose page is as right as the one with this tag.

    The comparison is weak, as the standard asks for in this field.
    """
    if field == tag:
        return tag
    if field.strip() == "*":
        return tag
    digest, _, instant = tag[1:-1].partition(".")
    for found in _TAG.finditer(field):
        if found[1] == digest and (
            found[2] == instant or (found[2] and instant and int(found[2], 16) < int(instant, 16))
        ):
            return f'"{found[0].strip(chr(34))}"'
    return None


def last_modified(query: PinnedRequest) -> datetime | None:
    """When the answer became what it is, as far as the stores know; never after now."""
    known = []
    static, live = query.endpoint.dataset.static, query.endpoint.dataset.live
    if static is not None:
        known.append(static.modified)
    if live is not None and query.snapshot is not None:
        published = live.modified(query.snapshot)
        if published is not None:
            known.append(published)
    if not known:
        return None
    return min(max(known), query.now)
