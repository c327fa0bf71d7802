"""What a writer is, and the text that several of them share."""

from collections.abc import Iterable
from typing import Protocol

from annotations.terms import Quad, Triple
from tpf_server.fragments.fragment import Fragment


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


def triple_lines(triples: Iterable[Triple | Quad]) -> str:
    """Lines of N-Triples; graphs are dropped."""
    return "".join([f"{row[0]} {row[1]} {row[2]} .\n" for row in triples])


def triples_of_page(fragment: Fragment) -> str:
    """Data, then metadata, as lines of N-Triples; a triple in several graphs is one triple."""
    lines = dict.fromkeys([f"{q[0]} {q[1]} {q[2]} .\n" for q in fragment.rows.quads])
    return "".join(lines) + triple_lines(fragment.metadata)
