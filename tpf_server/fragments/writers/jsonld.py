"""Write JSON-LD 1.1, expanded form: nodes by subject, and the metadata as a named graph."""

from collections.abc import Iterable
from functools import lru_cache

from annotations.namespaces import RDF, RDF_TYPE
from annotations.terms import DEFAULT_GRAPH, Term, Triple, is_triple_term, triple_of_term
from tpf_server.fragments.endpoint import Endpoint, made_once
from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import controls, metadata

_PARTS = ("Subject", "Predicate", "Object")
_XSD_STRING = "^^<http://www.w3.org/2001/XMLSchema#string>"


class JsonLdWriter:
    """Write JSON-LD 1.1."""

    name = "JSON-LD"
    suffix = "jsonld"
    media_types = ("application/ld+json", "application/json")

    def write(self, fragment: Fragment) -> str:
        """Return the body: default graph, named graphs, metadata graph."""
        graphs: dict[Term, list[Triple]] = {}
        for subject, predicate, value, graph in zip(*fragment.rows.columns, strict=True):
            graphs.setdefault(graph, []).append((subject, predicate, value))  # type: ignore[arg-type]
        about = metadata(fragment)
        form = _controls(fragment.query.endpoint)
        # What belongs to one subject may stand in several nodes; clients need this order.
        texts = [_nodes(about.before), form, _nodes([*about.after, *about.labels])]
        document = []
        default = graphs.pop(DEFAULT_GRAPH, None)
        if default is not None:
            document.append(_nodes(default))
        document += [_graph(name, _nodes(triples)) for name, triples in graphs.items()]
        document.append(_graph(about.graph, ",\n".join(texts)))
        return f"[{_joined(document)}]"


@made_once
def _controls(endpoint: Endpoint) -> str:
    return _nodes(controls(endpoint).triples)


def document(triples: Iterable[Triple]) -> str:
    """Return triples of the default graph as an expanded JSON-LD document."""
    return f"[{_nodes(triples)}]"


def _nodes(triples: Iterable[Triple]) -> str:
    results: dict[str, dict[str, list[str]]] = {}
    for subject, predicate, value in triples:
        node = results.get(subject)
        if node is None:
            node = results[subject] = {}
        text = _value(value)
        if predicate == RDF_TYPE and value[0] != '"' and not is_triple_term(value):
            key, text = "@type", text[7:-1]
        else:
            key = predicate[1:-1]
        values = node.get(key)
        if values is None:
            node[key] = [text]
        else:
            values.append(text)
    return ",\n".join(
        [
            f'{{"@id":{_id(subject)},'
            + ",".join([f'"{key}":[{",".join(values)}]' for key, values in node.items()])
            + "}"
            for subject, node in results.items()
        ]
    )


def _joined(texts: Iterable[str]) -> str:
    return ",\n".join([text for text in texts if text])


def _graph(name: str, text: str) -> str:
    return f'{{"@id":{_id(name)},"@graph":[{text}]}}'


def _id(term: str) -> str:
    return f'"{term[1:-1]}"' if term[0] == "<" else f'"{term}"'


def _value(term: str) -> str:
    if term[0] != '"':
        if is_triple_term(term):
            return _triple_term(triple_of_term(term))
        return f'{{"@id":{_id(term)}}}'
    end = term.rfind('"') + 1
    lexical, suffix = term[:end], term[end:]
    if not suffix or suffix == _XSD_STRING:
        return f'{{"@value":{lexical}}}'
    if suffix[0] == "^":
        return f'{{"@value":{lexical},"@type":"{suffix[3:-1]}"}}'
    return f'{{"@value":{lexical},{_language(suffix[1:])}}}'


def _triple_term(triple: Triple) -> str:
    parts = ",".join(
        [f'"{RDF}tt{name}":[{_value(term)}]' for name, term in zip(_PARTS, triple, strict=True)]
    )
    return f'{{"@type":["{RDF}TripleTerm"],{parts}}}'


@lru_cache(maxsize=256)
def _language(text: str) -> str:
    tag, _, direction = text.partition("--")
    return f'"@language":"{tag}"' + (f',"@direction":"{direction}"' if direction else "")
