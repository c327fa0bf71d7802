"""What a writer is, and the text that several of them share."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import Metadata, metadata, triple_lines


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


def quad_lines(quads: Iterable[Quad]) -> str:
    """Lines of N-Quads."""
    return "".join([f"{s} {p} {o} {g} .\n" if g else f"{s} {p} {o} .\n" for s, p, o, g in quads])


def metadata_lines(page: Metadata) -> str:
    """The metadata as lines of N-Triples."""
    after = triple_lines(page.after) + triple_lines(page.labels)
    return f"{triple_lines(page.before)}{page.controls.lines}{after}"


def lines_in_graph(lines: str, graph: Term) -> str:
    """Lines of N-Triples as lines of N-Quads in a graph."""
    # A line feed in a literal is escaped, so this is found at the ends of lines only.
    return lines if graph == DEFAULT_GRAPH else lines.replace(" .\n", f" {graph} .\n")


def open_data(fragment: Fragment) -> Sequence[Quad]:
    """The data of a page where nothing keeps them apart from its metadata.

    Those that read like metadata of our pages are left out.
    """
    authority, quads = fragment.query.endpoint.authority, fragment.rows.quads
    if authority.may_control(quads):
        return [quad for quad in quads if not authority.controls(quad)]
    return quads


def triples_of_page(fragment: Fragment) -> str:
    """Data, then metadata, as lines of N-Triples; a triple in several graphs is one triple."""
    lines = dict.fromkeys([f"{q[0]} {q[1]} {q[2]} .\n" for q in open_data(fragment)])
    return "".join(lines) + metadata_lines(metadata(fragment))
