"""JSON-LD 1.1, expanded form: nodes by subject, and the metadata as a named graph of its own."""

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from annotations.namespaces import RDF_TYPE
from annotations.terms import DEFAULT_GRAPH, Triple, literal_parts
from tpf_server.fragments.fragment import Fragment

_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"
_Node: TypeAlias = dict[str, Any]


class JsonLdWriter:
    """Writes JSON-LD, without triples that hold triple terms: JSON-LD 1.1 cannot say them."""

    name = "JSON-LD"
    suffix = "jsonld"
    media_types = ("application/ld+json", "application/json")

    def write(self, fragment: Fragment) -> str:
        """The body: default graph, named graphs, metadata graph."""
        graphs: dict[str, list[Triple]] = {}
        for quad in fragment.rows.quads:
            graphs.setdefault(quad.graph, []).append(quad.triple)
        graphs.setdefault(fragment.metadata_graph, []).extend(fragment.metadata)
        document = nodes(graphs.pop(DEFAULT_GRAPH, ()))
        document += [{"@id": _id(name), "@graph": nodes(rows)} for name, rows in graphs.items()]
        return json.dumps(document, ensure_ascii=False)


def nodes(triples: Iterable[Triple]) -> list[_Node]:
    """The triples as node objects in expanded form."""
    found: dict[str, _Node] = {}
    for subject, predicate, value in triples:
        if value.startswith("<<("):
            continue
        node = found.get(subject)
        if node is None:
            node = found[subject] = {"@id": _id(subject)}
        if predicate == RDF_TYPE and not value.startswith('"'):
            node.setdefault("@type", []).append(_id(value))
        else:
            node.setdefault(predicate[1:-1], []).append(_value(value))
    return list(found.values())


def _id(term: str) -> str:
    return term[1:-1] if term[0] == "<" else term


def _value(term: str) -> _Node:
    if term[0] != '"':
        return {"@id": _id(term)}
    lexical, language, datatype = literal_parts(term)
    if language is not None:
        tag, _, direction = language.partition("--")
        value = {"@value": lexical, "@language": tag}
        return value | {"@direction": direction} if direction else value
    if datatype == _XSD_STRING:
        return {"@value": lexical}
    return {"@value": lexical, "@type": datatype}
