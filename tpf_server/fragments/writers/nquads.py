"""N-Quads (RDF 1.2)."""

from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import metadata
from tpf_server.fragments.writers.base import lines_in_graph, metadata_lines, quad_lines


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
