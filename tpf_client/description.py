"""What the endpoint can, in RDF.

Source: SPARQL 1.1 Service Description.
"""

from collections.abc import Sequence
from wsgiref.util import application_uri

import rdflib
from rdflib.namespace import DCTERMS, RDF, RDFS

from tpf_client.protocol import WsgiEnvironment

_SD = rdflib.Namespace("http://www.w3.org/ns/sparql-service-description#")
_FORMATS = rdflib.Namespace("http://www.w3.org/ns/formats/")
_EVENTS = rdflib.URIRef("https://www.iana.org/assignments/media-types/text/event-stream")
_DRAFT = rdflib.URIRef("https://spec.knows.idlab.ugent.be/sparql-11-incremental-protocol/latest/")


def description(environ: WsgiEnvironment, path: str, urls: Sequence[str]) -> rdflib.Graph:
    """The description of the service that a request asks.

    Args:
        environ: the request.
        path: where queries are answered.
        urls: the datasets that they are answered over.
    """
    here = rdflib.URIRef(application_uri(dict(environ)).rstrip("/") + path)
    graph = rdflib.Graph()
    graph.bind("sd", _SD)
    graph.bind("formats", _FORMATS)
    graph.add((here, RDF.type, _SD.Service))
    graph.add((here, _SD.endpoint, here))
    graph.add((here, _SD.supportedLanguage, _SD.SPARQL11Query))
    graph.add((here, _SD.feature, _SD.BasicFederatedQuery))
    for name in ("JSON", "XML", "CSV", "TSV"):
        graph.add((here, _SD.resultFormat, _FORMATS[f"SPARQL_Results_{name}"]))
    for name in ("Turtle", "N-Triples", "RDF_XML", "JSON-LD"):
        graph.add((here, _SD.resultFormat, _FORMATS[name]))
    # Answers that are kept up to date. The draft whose names they take has a vocabulary of its own,
    # which is not used here, because the protocol is not followed to the letter.
    graph.add((here, _SD.resultFormat, _EVENTS))
    graph.add((_EVENTS, RDF.type, _FORMATS.Format))
    graph.add((_EVENTS, _FORMATS.media_type, rdflib.Literal("text/event-stream")))
    graph.add((_EVENTS, RDFS.seeAlso, _DRAFT))
    data = rdflib.BNode()
    graph.add((here, _SD.defaultDataset, data))
    graph.add((data, RDF.type, _SD.Dataset))
    for url in urls:
        graph.add((data, DCTERMS.source, rdflib.URIRef(url)))
    return graph
