"""TriG (RDF 1.2): a block per run of quads of one graph, then the metadata in theirs."""

from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import labels_of
from tpf_server.fragments.writers.compact import compact


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
