"""Small documents that are no fragments, as RDF: the list of datasets, errors."""

from collections.abc import Sequence

from flask import Response

from annotations.terms import Triple
from tpf_server.fragments.metadata import triple_lines
from tpf_server.fragments.negotiation import Chosen
from tpf_server.fragments.writers.jsonld import JsonLdWriter, document
from tpf_server.web.responses import answer


def rdf_answer(triples: Sequence[Triple], chosen: Chosen, status: int = 200) -> Response:
    """Triples of the default graph, in one of the formats of the fragments."""
    # Every format that we write beside JSON-LD reads lines of N-Triples.
    write = document if isinstance(chosen.writer, JsonLdWriter) else triple_lines
    return answer(write(triples), f"{chosen.media_type}; charset=utf-8", status)
