"""How long a page stays true, and how to tell whether it is still the same.

Source: RFC 9111 (caching), RFC 9110 section 8.8 (validators).

A page ends to be true when the next label of a matching fact ends or starts; new facts may come
before that, so the time is bounded by a setting of the dataset. Between two such instants, and as
long as nothing is published, the answer is the same; so its entity tag is a digest of the
versions of both stores, of the next of those instants and of the URL and format.
"""

from datetime import datetime
from hashlib import blake2b

from annotations.instants import to_micros
from tpf_server.fragments.fragment import Query


def max_age(query: Query) -> int:
    """Whole seconds for which the answer may be kept, rounded down."""
    seconds = query.endpoint.max_age
    change = query.state.next_change
    # A pinned page never changes.
    if change is not None and query.request.snapshot is None:
        seconds = min(seconds, (change - query.now).total_seconds())
    return max(0, int(seconds))


def kept_until(query: Query) -> int | None:
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


def entity_tag(query: Query, variant: str) -> str:
    """The strong entity tag of the answer in one format, with its quotation marks.

    Args:
        query: what is answered.
        variant: the format, and the encoding if any.
    """
    static = query.endpoint.dataset.static
    snapshot = query.snapshot
    parts = [variant, query.request.page_url, static.version if static is not None else ""]
    if snapshot is not None:
        change = query.state.next_change
        parts += [str(snapshot.sequence), str(to_micros(change)) if change is not None else ""]
    return f'"{blake2b(chr(10).join(parts).encode(), digest_size=12).hexdigest()}"'


def last_modified(query: Query) -> datetime | None:
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
