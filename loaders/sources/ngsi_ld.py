"""NGSI-LD entities (ETSI GS CIM 009, API 1.8) from a context broker, in all three forms.

Metadata of properties are left out; points become latitude and longitude; other geometries and
structures become literals. Remote contexts are not fetched: give them as a file.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import pyoxigraph as ox

from annotations.errors import InstantError, NestingError
from annotations.instants import parse_instant
from annotations.namespaces import RDF, XSD
from annotations.nesting import check_nesting
from annotations.terms import Quad, is_blank_node
from loaders.errors import InputError
from loaders.places import InputPlace, json_in
from loaders.sources.gtfs import GEO
from tpf_server.store.static.ox_terms import read_quads
from tpf_server.store.static.rdf_files import NOWHERE, relative_iri

# JSON documents as RDF: JSON-LD, or other JSON with a context that says what it means.
#
# Source: JSON-LD 1.1, section 3.1 "The Context": a context for JSON that has none may come from
# elsewhere. Remote contexts are not fetched.

_TYPE = "application/ld+json"


def reader_of_json(context: InputPlace | None) -> Callable[[bytes, str], list[Quad]]:
    """Return a reader of documents with a leading context."""
    given = None if context is None else context_of(context)

    def read(content: bytes, source: str) -> list[Quad]:
        try:
            check_nesting((content,), _TYPE)
            if given is not None:
                content = _with_context(content, given, source)
        except NestingError as error:
            raise InputError(error.reason, source, error.line) from None
        except ValueError as error:
            raise InputError(f"no JSON-LD ({error})", source) from None
        return quads_of_json(content, source, source)

    return read


def quads_of_json(content: bytes, source: str, base: str | None) -> list[Quad]:
    """Parse JSON-LD; without a base, relative IRIs are refused."""
    try:
        parsed = read_quads(content, ox.RdfFormat.JSON_LD, base=base or NOWHERE)
        quads = [_named(quad, source) for quad in parsed]
    except NestingError as error:
        raise InputError(error.reason, source, error.line) from None
    except SyntaxError as error:
        raise InputError(f"no JSON-LD ({error.msg})", source) from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"no JSON-LD ({error})", source) from None
    for relative in filter(None, map(relative_iri, quads if base is None else ())):
        raise InputError(f"a relative IRI: {relative!r}", source)
    return quads


def context_of(file: InputPlace) -> Any:
    """Return the context in a file."""
    document = json_in(file)
    if not isinstance(document, dict):
        raise InputError("no context: not an object of JSON", str(file))
    return document.get("@context", document)


def _with_context(content: bytes, context: Any, source: str) -> bytes:
    document = json.loads(content)
    entries = document if isinstance(document, list) else [document]
    if not all(isinstance(entry, dict) for entry in entries):
        raise InputError("no JSON-LD (an entry is not an object)", source)
    if isinstance(document, list):
        return _in_context(context, entries)
    own = document.get("@context", [])
    both = [context, *(own if isinstance(own, list) else [own])]
    return json.dumps({**document, "@context": both}).encode()


def _in_context(context: Any, nodes: list[Any]) -> bytes:
    return json.dumps({"@context": context, "@graph": nodes}).encode()


def _named(quad: Quad, source: str) -> Quad:
    if is_blank_node(quad.subject) or is_blank_node(quad.object):
        # It would be another one with every poll.
        raise InputError(f"a thing without an @id ({quad.predicate} of it)", source)
    return quad


DEFAULT_CONTEXT = "https://uri.etsi.org/ngsi-ld/default-context/"
_CORE = "https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context"
_CORE_TERMS = {
    name: f"https://uri.etsi.org/ngsi-ld/{name}"
    for name in ("location", "observationSpace", "operationSpace")
}
_GEOJSON = "http://www.opengis.net/ont/geosparql#geoJSONLiteral"
_GEOMETRIES = (
    "Point",
    "LineString",
    "Polygon",
    "MultiPoint",
    "MultiLineString",
    "MultiPolygon",
)
_OF_THE_SYSTEM = frozenset(
    {"@context", "id", "type", "scope", "createdAt", "modifiedAt", "deletedAt", "expiresAt"}
)
_FAR = 1e6
"""No degree is beyond; nor is a whole number that no decimal is made of."""
_NOTHING = "urn:ngsi-ld:null"


class NgsiLd:
    """Reads entities, lists of them, and notifications."""

    name = "ngsi-ld"
    suffix = ".json"

    def __init__(self, context: InputPlace | None = None) -> None:
        self._context = None if context is None else context_of(context)

    def read(self, content: bytes, source: str) -> list[Quad]:
        """Parse the entities of an answer or a notification."""
        document = _parsed(content, source)
        # An entity's own context, else that of the document.
        around = document.get("@context") if isinstance(document, dict) else None
        without, having = [], []
        for entity in _entities(document, source):
            if "deletedAt" in entity:
                continue
            if "@context" in entity:
                own = _not_remote(entity["@context"], self._context is None, source)
                node = _node(entity, source)
                having.append({**node, "@context": [*own, node.get("@context", {})]})
            else:
                without.append(_node(entity, source))
        contexts = [{"@vocab": DEFAULT_CONTEXT, **_CORE_TERMS}]
        if self._context is not None:
            contexts.append(self._context)
        shared = (
            [*contexts, *_not_remote(around, self._context is None, source)]
            if without
            else contexts
        )
        documents = ((shared, without), (contexts, having))
        return [
            quad
            for context, nodes in documents
            for quad in quads_of_json(_in_context(context, nodes), source, None)
        ]

    def instant(self, content: bytes, source: str) -> datetime:
        document = _parsed(content, source)
        text = document.get("notifiedAt") if isinstance(document, dict) else None
        try:
            return parse_instant(text if isinstance(text, str) else "")
        except InstantError:
            raise InputError(
                f"a notification of no instant: {text!r} (notifiedAt)", source
            ) from None


def _not_remote(context: Any, refuse: bool, source: str) -> list[Any]:
    results = []
    for each in context if isinstance(context, list) else [context]:
        if isinstance(each, dict):
            results.append(each)
        elif isinstance(each, str) and refuse and not each.startswith(_CORE):
            raise InputError(
                f"a context at {each!r}, which is not fetched: give it with --context", source
            )
    return results


def _parsed(content: bytes, source: str) -> Any:
    try:
        check_nesting((content,), "application/ld+json")
        return json.loads(content, parse_constant=_no_number, parse_float=_finite)
    except NestingError as error:
        raise InputError(error.reason, source, error.line) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error})", source) from None


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _entities(document: Any, source: str) -> list[dict[str, Any]]:
    if isinstance(document, dict) and document.get("type") == "Notification":
        document = document.get("data")
    entities = document if isinstance(document, list) else [document]
    for entity in entities:
        if not isinstance(entity, dict) or not _is_uri(entity.get("id")) or "type" not in entity:
            shown = json.dumps(entity)[:60]
            raise InputError(f"no entity of NGSI-LD (an id that is a URI, a type): {shown}", source)
    return entities


def _is_uri(text: Any) -> bool:
    # What is none is left out of JSON-LD, in silence.
    try:
        return bool(ox.NamedNode(text))
    except (TypeError, ValueError):
        return False


def _node(entity: Mapping[str, Any], source: str) -> dict[str, Any]:
    node: dict[str, Any] = {"@id": entity["id"], "@type": entity["type"]}
    for name, value_ in entity.items():
        if name in _OF_THE_SYSTEM or name.startswith("@"):
            continue
        instances = value_ if isinstance(value_, list) and _are_attributes(value_) else [value_]
        values: list[Any] = []
        for each in instances:
            point = _point(each) if name == "location" else None
            if isinstance(each, dict) and "vocab" in each and _content(each) is each["vocab"]:
                # Terms of the @context: another name of the property has JSON-LD read them so.
                terms = node.setdefault("@context", {})
                alias = f" {len(terms)}"
                terms[alias] = {"@id": name, "@type": "@vocab"}
                node[alias] = _vocabulary_terms(each, source)
            elif point is None:
                values.extend(_values(each, source))
            else:
                for axis, number in zip(("long", "lat"), point, strict=True):
                    value = {"@value": f"{number:.7f}", "@type": XSD + "decimal"}
                    node[GEO + axis] = [value]
        if values:
            node[name] = values
    return node


def _are_attributes(value: list[Any]) -> bool:
    return bool(value) and all(
        isinstance(each, dict) and _content(each) is not each for each in value
    )


def _content(attribute: Any) -> Any:
    """Return an attribute's value; in the simplified form, itself."""
    if isinstance(attribute, dict) and attribute.get("type") not in _GEOMETRIES:
        for name in ("value", "object", "languageMap", "json", "vocab", "valueList", "objectList"):
            if name in attribute:
                return attribute[name]
    return attribute


def _point(attribute: Any) -> tuple[float, float] | None:
    value = _content(attribute)
    if not (isinstance(value, dict) and value.get("type") == "Point"):
        return None
    match value.get("coordinates"):
        case [int() | float() as longitude, int() | float() as latitude, *_] if (
            max(abs(longitude), abs(latitude)) < _FAR
        ):
            return longitude, latitude
    return None


def _values(attribute: Any, source: str) -> Iterator[dict[str, Any]]:
    value = _content(attribute)
    if isinstance(attribute, dict) and value is not attribute:
        if "object" in attribute or "objectList" in attribute:
            for each in value if isinstance(value, list) else [value]:
                target = each.get("object") if isinstance(each, dict) else each
                if not _is_uri(target):
                    raise InputError(f"a relationship without an object: {attribute!r:.60}", source)
                if target != _NOTHING:
                    yield {"@id": target}
            return
        if "languageMap" in attribute:
            if not isinstance(value, dict):
                raise InputError(f"a text without languages: {attribute!r:.60}", source)
            for language, text in value.items():
                if text == _NOTHING:
                    continue
                tag = {} if language in ("@none", "@null") else {"@language": language}
                yield {"@value": text, **tag}
            return
        if "json" in attribute:
            if value != _NOTHING:
                yield _json(value, RDF + "JSON")
            return
    for each in value if isinstance(value, list) else [value]:
        match each:
            case None | "urn:ngsi-ld:null":
                continue
            case {"@value": stated, "@type": str() as kind}:
                typed = XSD + {"DateTime": "dateTime", "Date": "date", "Time": "time"}.get(kind, "")
                yield {"@value": stated, "@type": kind if typed == XSD else typed}
            case {"type": str() as kind} if kind in _GEOMETRIES:
                yield _json(each, _GEOJSON)
            case dict() | list():
                yield _json(each, RDF + "JSON")
            case _:
                yield {"@value": each}


def _vocabulary_terms(attribute: Mapping[str, Any], source: str) -> list[str]:
    value = attribute["vocab"]
    terms = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in terms):
        raise InputError(f"a VocabProperty without terms: {attribute!r:.60}", source)
    return [each for each in terms if each != _NOTHING]


def _json(value: Any, datatype: str) -> dict[str, Any]:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {"@value": text, "@type": datatype}
