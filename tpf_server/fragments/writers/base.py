"""What a writer is, and the text that several of them share."""

from typing import Protocol

from annotations.terms import DEFAULT_GRAPH, Term
from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import Metadata, metadata, triple_lines
from tpf_server.store.protocols import QuadColumns, quad_columns


class Writer(Protocol):
    """Renders fragments in one format. Writers are stateless."""

    @property
    def name(self) -> str:
        """The format's name for people: ``TriG``."""

    @property
    def suffix(self) -> str:
        """What selects it in a URL: ``trig``."""

    @property
    def media_types(self) -> tuple[str, ...]:
        """The media types that it answers to; the first one unless another was asked for."""

    def write(self, fragment: Fragment) -> str:
        """The body."""


def quad_lines(data: QuadColumns) -> str:
    """Lines of N-Quads."""
    quads = zip(*data, strict=True)
    return "".join([f"{s} {p} {o} {g} .\n" if g else f"{s} {p} {o} .\n" for s, p, o, g in quads])


def metadata_lines(page: Metadata) -> str:
    """The metadata as lines of N-Triples."""
    after = triple_lines(page.after) + triple_lines(page.labels)
    return f"{triple_lines(page.before)}{page.controls.lines}{after}"


def lines_in_graph(lines: str, graph: Term) -> str:
    """Lines of N-Triples as lines of N-Quads in a graph."""
    # A line feed in a literal is escaped, so this is found at the ends of lines only.
    return lines if graph == DEFAULT_GRAPH else lines.replace(" .\n", f" {graph} .\n")


def open_data(fragment: Fragment) -> QuadColumns:
    """The data of a page where nothing keeps them apart from its metadata.

    Those that read like metadata of our pages are left out.
    """
    authority, data = fragment.query.endpoint.authority, fragment.rows.columns
    if authority.may_control(data.predicates):
        return quad_columns([quad for quad in data.quads if not authority.controls(quad)])
    return data


def triples_of_page(fragment: Fragment) -> str:
    """Data, then metadata, as lines of N-Triples; a triple in several graphs is one triple."""
    triples = zip(*open_data(fragment)[:3], strict=True)
    lines = dict.fromkeys([f"{s} {p} {o} .\n" for s, p, o in triples])
    return "".join(lines) + metadata_lines(metadata(fragment))
