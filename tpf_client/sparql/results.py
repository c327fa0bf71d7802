"""Convert solutions to triples, rdflib terms and the SPARQL 1.1 result formats."""

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from annotations.namespaces import RDF, XSD
from annotations.terms import (
    Term,
    Variable,
    blank_node,
    iri,
    is_blank_node,
    is_iri,
    is_literal,
    literal,
    literal_parts,
    triple_of_term,
)
from tpf_client.errors import ClientError
from tpf_client.sparql.algebra import Row

if TYPE_CHECKING:
    import logging

    from rdflib import Literal, URIRef
    from rdflib.term import Identifier


class ResultError(ClientError, ValueError):
    """A result cannot be expressed in the requested form."""


# ------------------------------------------------------------------------------- rdflib


def rdflib_term(term: Term) -> "Identifier":
    """Convert a term to rdflib, with its lexical form.

    Triple terms become literals with the datatype ``rdf:tripleTerm``.
    """
    # It is loaded when somebody looks at a term: that takes as long as all of the client.
    from rdflib.term import BNode, Literal, URIRef

    if is_iri(term):
        return URIRef(term[1:-1])
    if is_blank_node(term):
        return BNode(term[2:])
    if not is_literal(term):
        return Literal(term, datatype=URIRef(RDF + "tripleTerm"), normalize=False)
    lexical, language, datatype = literal_parts(term)
    if language is not None:
        return Literal(lexical, lang=language.partition("--")[0])
    # rdflib distinguishes plain literals from typed strings; RDF 1.1 does not.
    if datatype == XSD + "string":
        return Literal(lexical)
    return typed_literal(lexical, URIRef(datatype))


_PYTHON_VALUES = (str, bool, int, float, Decimal, date, time, timedelta, bytes)


def python_term(value: object) -> Term:
    """The term of a term of rdflib, or of a Python value, for which rdflib has a literal.

    A plain ``str`` is a literal; an IRI is an `rdflib.URIRef`.
    """
    from rdflib.term import BNode, Literal, URIRef

    if isinstance(value, URIRef):
        return iri(str(value))
    if isinstance(value, BNode):
        return blank_node(str(value))
    if not isinstance(value, Literal):
        if not isinstance(value, _PYTHON_VALUES):
            raise TypeError(f"neither a term of rdflib nor a value of one: {value!r}")
        value = Literal(value)
    return literal(str(value), value.language, value.datatype)


_making = ContextVar("_making", default=False)


def _is_not_ours(_record: "logging.LogRecord") -> bool:
    return not _making.get()


@lru_cache(1)
def _log_nothing_of_ours() -> None:
    """Silence rdflib about our literals that do not fit their datatype."""
    import logging

    logging.getLogger("rdflib.term").addFilter(_is_not_ours)


def typed_literal(lexical: str, datatype: "URIRef | None") -> "Literal":
    """Make an rdflib literal with this text, even if it does not fit the datatype."""
    from rdflib.term import Literal

    _log_nothing_of_ours()
    before = _making.set(True)
    try:
        return Literal(lexical, datatype=datatype, normalize=False)
    finally:
        _making.reset(before)


# -------------------------------------------------------------------------- result formats


def to_json(variables: Sequence[Variable], rows: Iterable[Row]) -> Iterator[str]:
    """Yield SPARQL JSON results, piece by piece: a line for each solution."""
    yield f'{{"head": {json.dumps({"vars": _names(variables)}, ensure_ascii=False)}, '
    yield '"results": {"bindings": ['
    separator = "\n"
    for row in rows:
        yield separator + json_text(variables, row)
        separator = ",\n"
    yield "\n]}}"


def to_ndjson(variables: Sequence[Variable], rows: Iterable[Row]) -> Iterator[str]:
    """Yield solutions as lines, each a binding of SPARQL JSON results."""
    for row in rows:
        yield json_text(variables, row) + "\n"


def json_binding(variables: Sequence[Variable], row: Row) -> dict[str, Any]:
    """Return a solution as the object of SPARQL JSON results."""
    return {
        name[1:]: _json_term(term)
        for name, term in zip(variables, row, strict=True)
        if term is not None
    }


def json_text(variables: Sequence[Variable], row: Row) -> str:
    """Return the text of `json_binding`."""
    return json.dumps(json_binding(variables, row), ensure_ascii=False)


def _json_term(term: Term) -> dict[str, Any]:
    if is_iri(term):
        return {"type": "uri", "value": term[1:-1]}
    if is_blank_node(term):
        return {"type": "bnode", "value": term[2:]}
    if not is_literal(term):
        parts = zip(("subject", "predicate", "object"), triple_of_term(term), strict=True)
        return {"type": "triple", "value": {name: _json_term(part) for name, part in parts}}
    lexical, language, datatype = literal_parts(term)
    result = {"type": "literal", "value": lexical}
    if language is not None:
        result["xml:lang"], _, direction = language.partition("--")
        if direction:
            result["its:dir"] = direction
    elif datatype != XSD + "string":
        result["datatype"] = datatype
    return result


def to_xml(variables: Sequence[Variable], rows: Iterable[Row]) -> Iterator[str]:
    """Yield SPARQL XML results, piece by piece."""
    head = "".join(f"<variable name={_quoted(name)}/>" for name in _names(variables))
    yield f"{_XML}<head>{head}</head><results>"
    for row in rows:
        bindings = "".join(
            f"<binding name={_quoted(name[1:])}>{_xml_term(term)}</binding>"
            for name, term in zip(variables, row, strict=True)
            if term is not None
        )
        yield f"<result>{bindings}</result>"
    yield "</results></sparql>\n"


_XML = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<sparql xmlns="http://www.w3.org/2005/sparql-results#" '
    'xmlns:its="http://www.w3.org/2005/11/its" its:version="2.0">'
)


# A parser would turn a bare carriage return into a line feed. `xml.sax.saxutils` does the same, and
# imports HTTP and TLS.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ESCAPES_IN_QUOTES = _ESCAPES | str.maketrans({'"': "&quot;", "\n": "&#10;", "\t": "&#9;"})


_NOT_IN_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def check_xml(text: str) -> None:
    """Refuse characters that XML has no way to write."""
    if bad := _NOT_IN_XML.search(text):
        raise ResultError(f"XML cannot hold the character U+{ord(bad[0]):04X}")


def _xml_text(text: str, escapes: dict[int, str] = _ESCAPES) -> str:
    check_xml(text)
    return text.translate(escapes)


def _quoted(text: str) -> str:
    return f'"{_xml_text(text, _ESCAPES_IN_QUOTES)}"'


def _xml_term(term: Term) -> str:
    if is_iri(term):
        return f"<uri>{_xml_text(term[1:-1])}</uri>"
    if is_blank_node(term):
        return f"<bnode>{_xml_text(term[2:])}</bnode>"
    if not is_literal(term):
        parts = zip(("subject", "predicate", "object"), triple_of_term(term), strict=True)
        inside = "".join(f"<{name}>{_xml_term(part)}</{name}>" for name, part in parts)
        return f"<triple>{inside}</triple>"
    lexical, language, datatype = literal_parts(term)
    attributes = ""
    if language is not None:
        tag, _, direction = language.partition("--")
        attributes = f" xml:lang={_quoted(tag)}"
        if direction:
            attributes += f" its:dir={_quoted(direction)}"
    elif datatype != XSD + "string":
        attributes = f" datatype={_quoted(datatype)}"
    return f"<literal{attributes}>{_xml_text(lexical)}</literal>"


def to_csv(variables: Sequence[Variable], rows: Iterable[Row]) -> Iterator[str]:
    """Yield SPARQL CSV results, line by line."""
    import csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")

    def line(values: list[str]) -> str:
        # A lone empty value must not look like a row without values.
        if values == [""]:
            return "\r\n"
        text.seek(0)
        text.truncate()
        writer.writerow(values)
        return text.getvalue()

    yield line(_names(variables))
    for row in rows:
        yield line(["" if term is None else _csv_value(term) for term in row])


def _csv_value(term: Term) -> str:
    if is_iri(term):
        return term[1:-1]
    return literal_parts(term).lexical if is_literal(term) else term


def to_tsv(variables: Sequence[Variable], rows: Iterable[Row]) -> Iterator[str]:
    """Yield SPARQL TSV results, line by line."""
    yield "\t".join(variables) + "\n"
    for row in rows:
        yield "\t".join(["" if term is None else term for term in row]) + "\n"


def _names(variables: Sequence[Variable]) -> list[str]:
    return [name[1:] for name in variables]


def boolean_to_json(value: bool) -> str:
    """SPARQL JSON results of ASK."""
    return json.dumps({"head": {}, "boolean": value})


def boolean_to_xml(value: bool) -> str:
    """SPARQL XML results of ASK."""
    return f"{_XML}<head></head><boolean>{'true' if value else 'false'}</boolean></sparql>\n"


ResultWriter: TypeAlias = Callable[[Sequence[Variable], Iterable[Row]], Iterator[str]]

RESULT_WRITERS: dict[str, ResultWriter] = {
    "json": to_json,
    "xml": to_xml,
    "csv": to_csv,
    "tsv": to_tsv,
    "ndjson": to_ndjson,
}
"""Formats of SELECT results by name; each gives its text piece by piece, as solutions come."""

BOOLEAN_WRITERS: dict[str, Callable[[bool], str]] = {
    "json": boolean_to_json,
    "xml": boolean_to_xml,
}
"""Formats of ASK results by name; CSV and TSV have none."""

RESULT_MEDIA_TYPES: dict[str, str] = {
    "json": "application/sparql-results+json",
    "xml": "application/sparql-results+xml",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
}
"""The media types of the formats."""
