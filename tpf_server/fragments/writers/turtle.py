"""Turtle (RDF 1.2): without graphs, data and metadata in one."""

from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.writers.base import triples_of_page


class TurtleWriter:
    """Writes Turtle; N-Triples is a subset of it, and the cheapest one to write and to read."""

    name = "Turtle"
    suffix = "ttl"
    media_types = ("text/turtle",)

    def write(self, fragment: Fragment) -> str:
        """The body."""
        return triples_of_page(fragment)
