"""TriG (RDF 1.2): a block per run of quads of one graph, and one for the metadata."""

from itertools import groupby
from operator import itemgetter

from annotations.terms import DEFAULT_GRAPH
from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import metadata, triple_lines
from tpf_server.fragments.writers.base import metadata_lines

_graph = itemgetter(3)


class TrigWriter:
    """Writes TriG."""

    name = "TriG"
    suffix = "trig"
    media_types = ("application/trig",)

    def write(self, fragment: Fragment) -> str:
        """The body: data in their graphs, then the metadata graph."""
        blocks = []
        for graph, quads in groupby(fragment.rows.quads, key=_graph):
            lines = triple_lines(quads)
            blocks.append(lines if graph == DEFAULT_GRAPH else f"{graph} {{\n{lines}}}\n")
        about = metadata(fragment)
        blocks.append(f"{about.graph} {{\n{metadata_lines(about)}}}\n")
        return "".join(blocks)
