"""NGSI-LD entities (ETSI GS CIM 009, API 1.8) from a context broker, in all three forms.

Metadata of properties are left out; points become latitude and longitude; other geometries and
structures become literals. Remote contexts are not fetched: give them as a file.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pyoxigraph as ox

from annotations.errors import InstantError, NestingError
from annotations.instants import parse_instant
from annotations.namespaces import RDF, XSD
from annotations.nesting import check_nesting
from annotations.terms import Quad, is_blank_node
from loaders import vocabulary as v
from loaders.errors import InputError
from loaders.places import InputPlace, json_in
from loaders.sources.base import Items
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
        quads = list(read_quads(content, ox.RdfFormat.JSON_LD, base=base or NOWHERE))
    except NestingError as error:
        raise InputError(error.reason, source, error.line) from None
    except (SyntaxError, ValueError) as error:
        raise InputError(f"no JSON-LD ({getattr(error, 'msg', error)})", source) from None
    for quad in quads:
        if is_blank_node(quad.subject) or is_blank_node(quad.object):
            # It would be another one with every poll.
            raise InputError(f"a thing without an @id ({quad.predicate} of it)", source)
        if base is None and (relative := relative_iri(quad)):
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
    entries = _listed(document)
    if not all(isinstance(entry, dict) for entry in entries):
        raise InputError("no JSON-LD (an entry is not an object)", source)
    if isinstance(document, list):
        return _in_context(context, entries)
    both = [context, *_listed(document.get("@context", []))]
    return json.dumps({**document, "@context": both}).encode()


def _in_context(context: Any, nodes: list[Any]) -> bytes:
    return json.dumps({"@context": context, "@graph": nodes}).encode()


DEFAULT_CONTEXT = "https://uri.etsi.org/ngsi-ld/default-context/"
_CORE = "https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context"
_CORE_TERMS = {
    name: f"https://uri.etsi.org/ngsi-ld/{name}"
    for name in ("location", "observationSpace", "operationSpace")
}
_GEOJSON = "http://www.opengis.net/ont/geosparql#geoJSONLiteral"
_GEOMETRIES = ("Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon")
_OF_THE_SYSTEM = frozenset(
    {"@context", "id", "type", "scope", "createdAt", "modifiedAt", "deletedAt", "expiresAt"}
)
_NOT_IN_IRIS = re.compile(r'[\x00-\x20<>"{}|\\^`]')
_FAR = 1e6
"""No degree is beyond; nor is a whole number that no decimal is made of."""
_NOTHING = "urn:ngsi-ld:null"


class NgsiLd:
    """Reads entities, lists of them, and notifications."""

    name = "ngsi-ld"
    suffix = ".json"

    def __init__(self, context: InputPlace | None = None) -> None:
        self._context = None if context is None else context_of(context)

    def read(self, content: bytes, source: str) -> Sequence[Quad]:
        """Parse the entities of an answer or a notification."""
        document = _parsed(content, source)
        # An entity's own context, else that of the document.
        around = document.get("@context") if isinstance(document, dict) else None
        without, having = list[Any](), list[Any]()
        items = Items("entity", source)
        is_notice = isinstance(document, dict) and document.get("type") == "Notification"
        for entity in _listed(document.get("data") if is_notice else document):
            if isinstance(entity, dict) and "deletedAt" in entity:
                continue
            with items.item():
                node = _node(entity, source, [*_listed(self._context), *_listed(around)])
                if "@context" in entity:
                    own = _not_remote(entity["@context"], self._context is None, source)
                    having.append({**node, "@context": [*own, node.get("@context", {})]})
                else:
                    without.append(node)
        contexts = [{"@vocab": DEFAULT_CONTEXT, **_CORE_TERMS}]
        if self._context is not None:
            contexts.append(self._context)
        quads = quads_of_json(_in_context(contexts, having), source, None)
        if without:
            contexts += _not_remote(around, self._context is None, source)
            quads += quads_of_json(_in_context(contexts, without), source, None)
        return items.result(quads)

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
    for each in _listed(context):
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


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _name(text: str, contexts: list[Any]) -> str:
    """Encode what no IRI may have, as a name ends one; a context may define it as a term."""
    if any(isinstance(each, dict) and text in each for each in contexts):
        return text
    return _NOT_IN_IRIS.sub(lambda match: quote(match[0]), text)


def _is_uri(text: Any) -> bool:
    # What is none is left out of JSON-LD, in silence.
    try:
        return bool(ox.NamedNode(text))
    except (TypeError, ValueError):
        return False


def _node(entity: Any, source: str, contexts: list[Any]) -> dict[str, Any]:
    types: list[Any] = _listed(entity.get("type")) if isinstance(entity, dict) else [None]
    if not all(isinstance(each, str) for each in types) or not _is_uri(entity.get("id")):
        shown = json.dumps(entity)[:60]
        raise InputError(f"no entity of NGSI-LD (an id that is a URI, a type): {shown}", source)
    contexts = [*contexts, *_listed(entity.get("@context"))]
    node: dict[str, Any] = {"@id": entity["id"], "@type": [_name(each, contexts) for each in types]}
    for title, told in entity.items():
        if title in _OF_THE_SYSTEM or title.startswith("@"):
            continue
        name = _name(title, contexts)
        # The default one first: of several points, it is the latitude and longitude.
        several = _are_attributes(told)
        instances = sorted(told, key=lambda each: "datasetId" in each) if several else [told]
        values: list[Any] = []
        for each in instances:
            point = _point(each) if name == "location" and GEO + "lat" not in node else None
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


def _are_attributes(value: Any) -> bool:
    attributes = value if isinstance(value, list) else []
    are = [isinstance(each, dict) and _content(each) is not each for each in attributes]
    return bool(are) and all(are)


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
            for each in _listed(value):
                target = each.get("object") if isinstance(each, dict) else each
                if not _is_uri(target):
                    raise InputError(f"a relationship without an object: {attribute!r:.60}", source)
                if target != _NOTHING:
                    yield {"@id": target}
            return
        if "languageMap" in attribute:
            if not isinstance(value, dict):
                raise InputError(f"a text without languages: {attribute!r:.60}", source)
            for language, texts in value.items():
                tag = v.language_tag(language)
                for text in _listed(texts):
                    if text in (None, _NOTHING):
                        continue
                    if not isinstance(text, str):
                        raise InputError(f"a text that is none: {attribute!r:.60}", source)
                    yield {"@value": text, **({"@language": tag} if tag else {})}
            return
        if "json" in attribute:
            if value != _NOTHING:
                yield _json(value, RDF + "JSON")
            return
    for each in _listed(value):
        match each:
            case None | "urn:ngsi-ld:null":
                continue
            case {"@value": _, "@type": "@json"}:
                yield each
            case {"@value": str() | int() | float() as stated, "@type": str() as kind} if (
                not _NOT_IN_IRIS.search(kind)
            ):
                typed = XSD + {"DateTime": "dateTime", "Date": "date", "Time": "time"}.get(kind, "")
                yield {"@value": stated, "@type": kind if typed == XSD else typed}
            case {"type": str() as kind} if kind in _GEOMETRIES:
                yield _json(each, _GEOJSON)
            case dict() | list():
                yield _json(each, RDF + "JSON")
            case _:
                yield {"@value": each}


def _vocabulary_terms(attribute: Mapping[str, Any], source: str) -> list[str]:
    terms = _listed(attribute["vocab"])
    if not all(isinstance(each, str) for each in terms):
        raise InputError(f"a VocabProperty without terms: {attribute!r:.60}", source)
    return [each for each in terms if each != _NOTHING]


def _json(value: Any, datatype: str) -> dict[str, Any]:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {"@value": text, "@type": datatype}
