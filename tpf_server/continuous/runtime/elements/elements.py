"""Elements of streams as text: lines with a timestamp, NDJSON, and RDF bodies.

========  =========================================================================================
TSV       ``timestamp<TAB>subject<TAB>predicate<TAB>object``, N-Triples terms: a triple
N-Quads   ``timestamp<TAB>statement .``: statements that follow each other with the same timestamp
          and the same graph name are one element
NDJSON    ``{"timestamp": …, "triple": ["s", "p", "o"]}`` or ``"triples": [[…], …]`` for a graph;
          ``"graph": "<name>"`` beside them names it
RDF       N-Triples, Turtle: one element; N-Quads, TriG: one for each graph
========  =========================================================================================

A timestamp is a whole number of milliseconds since 1970, or an instant in ISO 8601, of the years 1
to 9999. It may be left out, with its tabulator, where the present is given.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyoxigraph as ox

from annotations.errors import InstantError, NestingError
from annotations.instants import parse_instant
from annotations.terms import Term, is_blank_node, is_iri
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.values import value_of
from tpf_server.continuous.runtime.errors import ElementError, TimestampError
from tpf_server.store.static.ox_terms import parse_rdf, read_quads, text_of

# Instants as whole milliseconds since 1970-01-01T00:00:00Z.

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = -62_135_596_800_000
LATEST: Final = 253_402_300_799_999
"""The first and the last millisecond that have a date of four digits."""


def milliseconds(timestamp: object) -> int:
    """Return milliseconds since 1970 of an instant (rounded down), or such a number itself.

    A `TimestampError` is no instant of the years 1 to 9999, or naive.
    """
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise TimestampError(f"without a time zone: {timestamp}")
        at = (timestamp - EPOCH) // timedelta(milliseconds=1)
    # Integers of other libraries, too.
    elif isinstance(timestamp, bool) or not isinstance(timestamp, Integral):
        raise TimestampError(f"not an instant: {timestamp!r}")
    else:
        at = int(timestamp)
    if not EARLIEST <= at <= LATEST:
        raise TimestampError(f"not in the years 1 to 9999: {at}")
    return at


def iso(at: int) -> str:
    """Return the instant in ISO 8601."""
    return (
        (EPOCH + timedelta(milliseconds=at))
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def date_time_term(instant: datetime) -> Term:
    """Return an instant as a term, in UTC."""
    text = instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    return Term(f'"{text.rstrip("0").rstrip(".")}Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>')


def date_time_at(at: int) -> DateTime:
    """Return milliseconds since 1970 as a value of SPARQL, or raise `TimestampError`."""
    value = value_of(date_time_term(EPOCH + timedelta(milliseconds=milliseconds(at))))
    assert isinstance(value, DateTime)
    return value


# Elements that are named graphs: triples that know the name of their graph.
#
# Only these carry one: an element without is a plain tuple, wherever it goes.

_NAMES: Final = ("<", "_")


class _GraphElement(tuple[tuple[Term, Term, Term], ...]):
    graph: Term


def in_graph(
    name: str | None, triples: Iterable[tuple[Term, Term, Term]]
) -> tuple[tuple[Term, Term, Term], ...]:
    """Put triples into the graph of this name, if it is an IRI or blank node."""
    if name is None or not name.startswith(_NAMES):
        return tuple(triples)
    element = _GraphElement(triples)
    element.graph = Term(name)
    return element


def graph_of(triples: object) -> Term | None:
    """Return the name of the graph that an element is, or ``None``."""
    return triples.graph if isinstance(triples, _GraphElement) else None


_Triples = tuple[tuple[Term, Term, Term], ...]

_SIMPLE_IRI = re.compile(r'<[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|^`\\\ud800-\udfff]*>')
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SIMPLE_LITERAL = re.compile(
    r'"[ !#-\[\]-~\u00a0-\ud7ff\ue000-\ufffd]*"'
    rf"(?:@[a-z]{{2,3}}|\^\^(?!<http://www\.w3\.org/){_SIMPLE_IRI.pattern}"
    r"|\^\^<http://www\.w3\.org/2001/XMLSchema#(?!string>)[A-Za-z]+>)?"
)
"""Literals that are their own canonical text."""
_SUBJECT = "<urn:x> <urn:x> "


class Element(NamedTuple):
    """An element, with the number of its (first) line."""

    at: int
    triples: _Triples
    line: int


def canonical_term(text: object) -> Term:
    """Return the term of an N-Triples text, or raise `ElementError`."""
    if not isinstance(text, str):
        raise ElementError(f"not a term: {text!r}")
    if _SIMPLE_IRI.fullmatch(text) or _SIMPLE_LITERAL.fullmatch(text):
        return Term(text)
    statement = _parsed(f"{_SUBJECT}{text} .", ox.RdfFormat.N_TRIPLES, f"not a term: {text!r}")
    return text_of(statement.object)


def _parsed(text: str, rdf_format: ox.RdfFormat, otherwise: str) -> ox.Quad:
    try:
        (quad,) = parse_rdf(text.encode(), rdf_format)
    except NestingError as error:
        raise ElementError(f"triple terms are {error.reason}") from None
    except (SyntaxError, ValueError):
        raise ElementError(otherwise) from None
    return quad


remembered_term = lru_cache(maxsize=65_536)(canonical_term)
"""The same, for terms that come again and again and are kept nowhere."""


def instant(value: object) -> int:
    """Return milliseconds since 1970 of a timestamp, or raise `ElementError`."""
    at: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        at = value
    elif isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            at = int(text)
        else:
            with suppress(InstantError):
                at = milliseconds(parse_instant(text))
    if at is None or not EARLIEST <= at <= LATEST:
        raise ElementError(f"not a timestamp: {value!r}")
    return at


def elements_of(lines: Iterable[str], now: int | None = None) -> Iterator[Element | ElementError]:
    """Return the elements of TSV or N-Quads lines; a malformed line is an error in its place.

    `now` is the timestamp of elements without one; ``None``: each needs one.
    """
    pending: tuple[int, str, list[tuple[Term, Term, Term]], int] | None = None
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        try:
            stamp, _, rest = text.partition("\t")
            if now is not None and text[0] in "<_\t":
                at, rest = now, text.removeprefix("\t")
            else:
                at = instant(stamp)
            fields = rest.split("\t")
            if len(fields) == 3:
                if pending is not None:
                    yield _finished(pending)
                    pending = None
                yield Element(at, (canonical_triple(fields),), number)
                continue
            graph, triple = _statement(rest)
        except ElementError as error:
            yield ElementError(str(error), number)
            continue
        if pending is not None and pending[:2] == (at, graph):
            pending[2].append(triple)
            continue
        if pending is not None:
            yield _finished(pending)
        pending = (at, graph, [triple], number)
    if pending is not None:
        yield _finished(pending)


def read_file(stream: str, path: Path) -> Iterator[tuple[int, str, Element | ElementError]]:
    """Return the elements of a file of lines, each with its timestamp and its stream.

    A malformed line is an error, at the time of the element before it.
    """
    last = 0
    # What is no UTF-8 is in no term: its line is malformed, and the next one need not be.
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        for item in elements_of(lines):
            if isinstance(item, ElementError):
                yield last, stream, ElementError(f"{path}: {item}")
            else:
                last = item.at
                yield item.at, stream, item


def _finished(pending: tuple[int, str, list[tuple[Term, Term, Term]], int]) -> Element:
    at, graph, triples, line = pending
    return Element(at, in_graph(graph, dict.fromkeys(triples)), line)


def _statement(text: str) -> tuple[str, tuple[Term, Term, Term]]:
    quad = _parsed(text, ox.RdfFormat.N_QUADS, f"not a statement: {text!r}")
    terms = (text_of(quad.subject), text_of(quad.predicate), text_of(quad.object))
    return str(quad.graph_name), terms


def canonical_triple(
    texts: Sequence[object], term: Callable[[str], Term] = remembered_term
) -> tuple[Term, Term, Term]:
    """Return the triple of N-Triples texts, or raise `ElementError`."""
    if len(texts) != 3 or not all(isinstance(text, str) for text in texts):
        raise ElementError(f"not a triple: {texts!r}")
    try:
        subject, predicate, object_ = (term(str(text).strip()) for text in texts)
    except ElementError as error:
        raise ElementError(f"{error}, in {texts!r}") from None
    if not may_begin(subject, predicate):
        raise ElementError(f"not a triple: {texts!r}")
    return subject, predicate, object_


def may_begin(subject: Term | str, predicate: Term | str) -> bool:
    """True if a triple may have these terms."""
    return subject[0] != '"' and predicate[0] == "<" and subject[1] != "<" and predicate[1] != "<"


def read_ndjson(text: str, now: int | None = None) -> Iterator[Element | ElementError]:
    """Return the elements of NDJSON lines; see `elements_of`."""
    # Not splitlines: a string may have U+2028 and its like inside.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield _element(read_json(line), number, now)
        except ElementError as error:
            yield ElementError(str(error), number)


def read_json(text: str) -> Any:
    """Return the value of a JSON text, or raise `ElementError`, also for infinite numbers."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ElementError(f"not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise ElementError("not JSON that can be read: a number too long, or too deep") from None


def _element(value: Any, line: int, now: int | None) -> Element:
    if not isinstance(value, dict) or ("triple" in value) == ("triples" in value):
        raise ElementError('expected an object with "timestamp" and "triple" or "triples"')
    stamp = value.get("timestamp")
    at = now if stamp is None and now is not None else instant(stamp)
    triples = [value["triple"]] if "triple" in value else value["triples"]
    if not isinstance(triples, list) or not all(isinstance(each, list) for each in triples):
        raise ElementError("triples are arrays of three terms")
    if not triples:
        raise ElementError("an element has at least one triple")
    graph = None if value.get("graph") is None else graph_name(value["graph"])
    distinct = dict.fromkeys(canonical_triple(each) for each in triples)
    return Element(at, in_graph(graph, distinct), line)


def graph_name(text: object) -> Term:
    """Return the name of a graph, an IRI or blank node, from an N-Triples text."""
    name = canonical_term(text)
    if not (is_iri(name) or is_blank_node(name)):
        raise ElementError(f"not the name of a graph: {text!r}")
    return name


RDF_TYPES = {
    "application/n-triples": ox.RdfFormat.N_TRIPLES,
    "application/n-quads": ox.RdfFormat.N_QUADS,
    "text/turtle": ox.RdfFormat.TURTLE,
    "application/trig": ox.RdfFormat.TRIG,
}


def read_rdf(body: bytes, rdf_format: ox.RdfFormat, at: int) -> list[Element]:
    """Return the elements of an RDF body, one for each graph, with the same timestamp.

    An `ElementError` names the line that is malformed, nested too deep, or much larger when its
    prefixes are written out.
    """
    graphs: dict[str, list[tuple[Term, Term, Term]]] = {}
    try:
        # Blank nodes of two bodies are different nodes.
        for quad in read_quads(body, rdf_format, rename=True):
            graphs.setdefault(quad.graph, []).append(quad[:3])
    except NestingError as error:
        raise ElementError(error.reason, error.line) from None
    except SyntaxError as error:
        raise ElementError(error.msg, error.lineno) from None
    return [Element(at, in_graph(name, dict.fromkeys(each)), 1) for name, each in graphs.items()]
