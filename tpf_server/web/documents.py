"""Small documents that are no fragments, as RDF: the list of datasets, errors."""

import json
from collections.abc import Sequence

from flask import Response

from annotations.terms import Triple
from tpf_server.fragments.negotiation import Chosen
from tpf_server.fragments.writers.base import triple_lines
from tpf_server.fragments.writers.jsonld import JsonLdWriter, nodes
from tpf_server.web.responses import answer


def rdf_answer(triples: Sequence[Triple], chosen: Chosen, status: int = 200) -> Response:
    """Triples of the default graph, in one of the formats of the fragments."""
    if isinstance(chosen.writer, JsonLdWriter):
        body = json.dumps(nodes(triples), ensure_ascii=False)
    else:
        # Every other format that we write reads lines of N-Triples.
        body = triple_lines(triples)
    return answer(body, f"{chosen.media_type}; charset=utf-8", status)
