"""N-Quads (RDF 1.2)."""

from annotations.terms import Quad
from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import labels_of, metadata
from tpf_server.fragments.writers.base import (
    lines_in_graph,
    metadata_lines,
    open_data,
    quad_lines,
    triples_of_page,
)
from tpf_server.fragments.writers.compact import compact
from tpf_server.store.protocols import quad_columns

# N-Triples (RDF 1.2): without graphs, data and metadata in one.


class NTriplesWriter:
    """Writes N-Triples."""

    name = "N-Triples"
    suffix = "nt"
    media_types = ("application/n-triples",)

    def write(self, fragment: Fragment) -> str:
        """The body."""
        return triples_of_page(fragment)


# TriG (RDF 1.2): a block per run of quads of one graph, then the metadata in theirs.


class TrigWriter:
    """Writes TriG."""

    name = "TriG"
    suffix = "trig"
    media_types = ("application/trig",)

    def write(self, fragment: Fragment) -> str:
        """The body: data in their graphs, then the metadata graph."""
        pages = compact(fragment.query.endpoint)
        graph = f"<{fragment.query.request.page_url}#metadata>"
        labels = pages.labels(labels_of(fragment), graph)
        return pages.data(fragment.rows.columns) + labels + pages.metadata(fragment, graph=True)


# Turtle (RDF 1.2): without graphs, data and metadata in one.


class TurtleWriter:
    """Writes Turtle."""

    name = "Turtle"
    suffix = "ttl"
    media_types = ("text/turtle",)

    def write(self, fragment: Fragment) -> str:
        """The body; a triple in several graphs is one triple."""
        data = open_data(fragment)
        if any(data.graphs):
            data = quad_columns(list(dict.fromkeys([Quad(*quad[:3]) for quad in data.quads])))
        pages = compact(fragment.query.endpoint)
        labels = pages.labels(labels_of(fragment))
        return pages.data(data) + labels + pages.metadata(fragment, graph=False)


class NQuadsWriter:
    """Writes N-Quads."""

    name = "N-Quads"
    suffix = "nq"
    media_types = ("application/n-quads",)

    def write(self, fragment: Fragment) -> str:
        """The body: data, then metadata."""
        about = metadata(fragment)
        data = quad_lines(fragment.rows.columns)
        return data + lines_in_graph(metadata_lines(about), about.graph)
