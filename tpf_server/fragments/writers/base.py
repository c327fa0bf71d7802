"""The interface of writers, and the text that several of them share."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from annotations.terms import DEFAULT_GRAPH, Term
from tpf_server.errors import NotAcceptableError, RequestError
from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import Metadata, metadata, triple_lines
from tpf_server.store.protocols import QuadColumns, quad_columns


class Writer(Protocol):
    """Render fragments in one format. Writers are stateless."""

    @property
    def name(self) -> str:
        """The format's name: ``TriG``."""

    @property
    def suffix(self) -> str:
        """Its suffix in a URL: ``trig``."""

    @property
    def media_types(self) -> tuple[str, ...]:
        """Its media types; the first one is the default."""

    def write(self, fragment: Fragment) -> str:
        """Return the body."""


def quad_lines(data: QuadColumns) -> str:
    """Return lines of N-Quads."""
    quads = zip(*data, strict=True)
    return "".join([f"{s} {p} {o} {g} .\n" if g else f"{s} {p} {o} .\n" for s, p, o, g in quads])


def metadata_lines(page: Metadata) -> str:
    """Return the metadata as lines of N-Triples."""
    after = triple_lines(page.after) + triple_lines(page.labels)
    return f"{triple_lines(page.before)}{page.controls.lines}{after}"


def lines_in_graph(lines: str, graph: Term) -> str:
    """Turn lines of N-Triples into N-Quads in a graph."""
    # A line feed in a literal is escaped, so this is found at the ends of lines only.
    return lines if graph == DEFAULT_GRAPH else lines.replace(" .\n", f" {graph} .\n")


def open_data(fragment: Fragment) -> QuadColumns:
    """Return the data of a page, without quads that read like metadata."""
    authority, data = fragment.query.endpoint.authority, fragment.rows.columns
    if authority.may_control(data.predicates):
        return quad_columns([quad for quad in data.quads if not authority.controls(quad)])
    return data


def triples_of_page(fragment: Fragment) -> str:
    """Return data and metadata as N-Triples; a triple of several graphs once."""
    triples = zip(*open_data(fragment)[:3], strict=True)
    lines = dict.fromkeys([f"{s} {p} {o} .\n" for s, p, o in triples])
    return "".join(lines) + metadata_lines(metadata(fragment))


# Which format a client gets: by the suffix of the URL, or by its ``Accept`` header.
#
# Source: RFC 9110, section 12.5.1. Quality values are honoured; where a client likes several
# formats equally, the server's preference decides; where nothing fits, the answer is 406.

LONGEST_ACCEPT: Final = 4096
"""Characters of a header that are read: it takes time, and what came of it is remembered."""


def types_in_accept(header: str) -> MIMEAccept:
    """Return what an ``Accept`` header names; parameters (``charset``, ``profile``) say nothing."""
    wanted = parse_accept_header(header, MIMEAccept)
    return MIMEAccept([(kind.partition(";")[0].rstrip(), quality) for kind, quality in wanted])


class Chosen(NamedTuple):
    """A format to answer in."""

    writer: Writer
    media_type: str


class Negotiator:
    """Choose among writers."""

    def __init__(self, writers: Sequence[Writer]) -> None:
        self._offers = {kind: Chosen(w, kind) for w in writers for kind in w.media_types}
        self._by_suffix = {
            writer.suffix: Chosen(writer, writer.media_types[0]) for writer in writers
        }
        self._cached = lru_cache(maxsize=256)(self._choose)

    def by_suffix(self, suffix: str) -> Chosen | None:
        return self._by_suffix.get(suffix)

    def by_accept(self, header: str | None) -> Chosen:
        """Return the format that an ``Accept`` header selects."""
        if header is not None and len(header) > LONGEST_ACCEPT:
            raise RequestError(f"Accept has more than {LONGEST_ACCEPT} characters")
        chosen = self._cached(header or "*/*")
        if chosen is None:
            offered = ", ".join(self._offers)
            raise NotAcceptableError(f"nothing fits Accept: {header}; there are {offered}")
        return chosen

    def _choose(self, header: str) -> Chosen | None:
        best = types_in_accept(header).best_match(list(self._offers))
        return None if best is None else self._offers[best]
