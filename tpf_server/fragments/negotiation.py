"""Which format a client gets: by the suffix of the URL, or by its ``Accept`` header.

Source: RFC 9110, section 12.5.1. Quality values are honoured; where a client likes several formats
equally, the server's preference decides; where nothing fits, the answer is 406.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from tpf_server.errors import NotAcceptableError, RequestError
from tpf_server.fragments.writers.base import Writer

LONGEST_ACCEPT: Final = 4096
"""Characters of a header that are read: it takes time, and what came of it is remembered."""


class Chosen(NamedTuple):
    """A format to answer in."""

    writer: Writer
    media_type: str


class Negotiator:
    """Chooses among writers.

    Args:
        writers: in the order of the server's preference.
    """

    def __init__(self, writers: Sequence[Writer]) -> None:
        self._offers = {kind: Chosen(w, kind) for w in writers for kind in w.media_types}
        self._by_suffix = {
            writer.suffix: Chosen(writer, writer.media_types[0]) for writer in writers
        }
        self._cached = lru_cache(maxsize=256)(self._choose)

    def by_suffix(self, suffix: str) -> Chosen | None:
        """The format that a URL's suffix selects."""
        return self._by_suffix.get(suffix)

    def by_accept(self, header: str | None) -> Chosen:
        """The format that an ``Accept`` header selects.

        Raises:
            NotAcceptableError: the client accepts none of the formats.
            RequestError: the header is longer than `LONGEST_ACCEPT`.
        """
        if header is not None and len(header) > LONGEST_ACCEPT:
            raise RequestError(f"Accept has more than {LONGEST_ACCEPT} characters")
        chosen = self._cached(header or "*/*")
        if chosen is None:
            offered = ", ".join(self._offers)
            raise NotAcceptableError(f"nothing fits Accept: {header}; there are {offered}")
        return chosen

    def _choose(self, header: str) -> Chosen | None:
        accepted = parse_accept_header(header, MIMEAccept)
        best = accepted.best_match(list(self._offers))
        return None if best is None else self._offers[best]
