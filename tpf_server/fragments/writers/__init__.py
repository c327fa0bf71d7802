"""Writers, one file per format. A new format is one more file and a line in `WRITERS`."""

from tpf_server.fragments.writers.base import Writer
from tpf_server.fragments.writers.jsonld import JsonLdWriter
from tpf_server.fragments.writers.turtle import (
    NQuadsWriter,
    NTriplesWriter,
    TrigWriter,
    TurtleWriter,
)

WRITERS: tuple[Writer, ...] = (
    TrigWriter(),
    NQuadsWriter(),
    TurtleWriter(),
    NTriplesWriter(),
    JsonLdWriter(),
)
"""All writers of RDF, in the order of the server's preference."""
