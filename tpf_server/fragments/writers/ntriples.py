"""N-Triples (RDF 1.2): without graphs, data and metadata in one."""

from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.writers.base import triples_of_page


class NTriplesWriter:
    """Writes N-Triples."""

    name = "N-Triples"
    suffix = "nt"
    media_types = ("application/n-triples",)

    def write(self, fragment: Fragment) -> str:
        """The body."""
        return triples_of_page(fragment)
