"""Turtle (RDF 1.2): without graphs, data and metadata in one."""

from annotations.terms import Quad
from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import labels_of
from tpf_server.fragments.writers.base import open_data
from tpf_server.fragments.writers.compact import compact
from tpf_server.store.protocols import quad_columns


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
