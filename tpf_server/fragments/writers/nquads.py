"""N-Quads (RDF 1.2)."""

from tpf_server.fragments.fragment import Fragment


class NQuadsWriter:
    """Writes N-Quads."""

    name = "N-Quads"
    suffix = "nq"
    media_types = ("application/n-quads",)

    def write(self, fragment: Fragment) -> str:
        """The body: data, then metadata."""
        graph = fragment.metadata_graph
        lines = [
            f"{s} {p} {o} {g} .\n" if g else f"{s} {p} {o} .\n"
            for s, p, o, g in fragment.rows.quads
        ]
        lines += [f"{s} {p} {o} {graph} .\n" for s, p, o in fragment.metadata]
        return "".join(lines)
