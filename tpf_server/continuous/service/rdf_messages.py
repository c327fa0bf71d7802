"""RDF Messages: elements and emissions as datasets that belong together.

A message is one RDF dataset. An RDF Message Log in N-Triples or N-Quads announces itself
(``VERSION "1.2-messages"``, also as parameter ``version`` of the media type) and separates messages
by lines ``MESSAGE``; blank nodes belong to their message. In NDJSON-LD a line is a message, and one
with only ``@context`` is the context of those that follow. As a server-sent event, the data of
each event is a message in N-Quads.

Source: W3C RDF Stream Processing Community Group, *RDF Messages* (living draft), as of commit
09500e52 of github.com/w3c-cg/rsp.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import pyoxigraph as ox

from annotations.nesting import most_written
from tpf_client.sparql.algebra import Row
from tpf_server.continuous.runtime.elements.elements import (
    RDF_TYPES,
    Element,
    read_json,
    read_rdf,
)
from tpf_server.continuous.runtime.errors import ContinuousError, ElementError
from tpf_server.continuous.service.hosting import HostedQuery, emissions_of, ending, events
from tpf_server.store.static.ox_terms import parse_rdf

NDJSON_LD: Final = "application/x-ld+ndjson"
LOG: Final = "application/n-quads"
"""The media type of a log of results."""
LOG_TYPE: Final = f"{LOG}; version=1.2-messages"
LOG_TYPES: Final = ("application/n-triples", LOG)
"""The media types of logs that are read."""
_ANNOUNCED: Final = re.compile(rb"""(?:\xef\xbb\xbf)?\s*VERSION[ \t]+["'][^"'\n]*-messages["']""")
_HEAD: Final = 'VERSION "1.2-messages"\n'
_DELIMITER: Final = re.compile(r"[ \t]*MESSAGE[ \t]*(#.*)?\r?")
_VERSION: Final = re.compile(r"[ \t]*VERSION[ \t]+(\"[^\"]*\"|'[^']*')[ \t]*(#.*)?\r?")


def is_log(media_type: str, version: str, body: bytes) -> bool:
    """True for a log, by its media type with the parameter ``version``, or by its first line."""
    if media_type not in LOG_TYPES:
        return media_type == NDJSON_LD
    return version.endswith("-messages") or _ANNOUNCED.match(body) is not None


def read_messages(text: str, media_type: str, at: int) -> Iterator[Element | ElementError]:
    """Return the elements of a log, one for each graph of a message, with the same timestamp.

    A malformed message is an `ElementError` that names the line.
    """
    messages = _documents(text) if media_type == NDJSON_LD else _parts(text)
    rdf_format = ox.RdfFormat.JSON_LD if media_type == NDJSON_LD else RDF_TYPES[media_type]
    for line, message in messages:
        if isinstance(message, ElementError):
            yield message
            continue
        try:
            yield from read_rdf(message.encode(), rdf_format, at)
        except ElementError as error:
            reason = str(error).removeprefix(f"line {error.line}: ")
            yield ElementError(reason, line + (error.line or 1) - 1)


def _parts(text: str) -> Iterator[tuple[int, str]]:
    first, lines = 1, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        if _DELIMITER.fullmatch(line):
            yield first, "\n".join(lines)
            first, lines = number + 1, []
        else:
            lines.append("" if _VERSION.fullmatch(line) else line)
    yield first, "\n".join(lines)


def _documents(text: str) -> Iterator[tuple[int, str | ElementError]]:
    contexts: list[object] = []
    size, left = 0, most_written(len(text))
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        try:
            message = read_json(line)
        except ElementError as error:
            yield number, ElementError(str(error), number)
            continue
        if not isinstance(message, dict):
            yield number, ElementError("a message is a JSON object", number)
        elif list(message) == ["@context"]:
            contexts = _listed(message["@context"])
            size = len(json.dumps(contexts))
        elif contexts:
            left -= size
            if left < 0:
                reason = "with their contexts written out, the messages are too long"
                yield number, ElementError(reason, number)
                continue
            # Its own context is processed after the one that came before it.
            both = [*contexts, *_listed(message.pop("@context", []))]
            yield number, json.dumps({"@context": both, **message})
        else:
            yield number, line


def _listed(context: object) -> list[object]:
    return context if isinstance(context, list) else [context]


def as_log(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """Write the triples of emissions as a log of N-Quads; an error is a comment at its end."""
    yield _HEAD
    try:
        for portion in emissions_of(hosted, after, follow=follow):
            yield "".join(f"{_lines(each.rows)}MESSAGE\n" for _, each in portion) or "\n"
    except ContinuousError as error:
        yield f"# {ending(error)}\n"


def as_documents(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """Write the triples of emissions as NDJSON-LD, in which an empty context is a heartbeat."""
    with suppress(ContinuousError):
        for portion in emissions_of(hosted, after, follow=follow):
            lines = [_document(_lines(each.rows)) for _, each in portion]
            yield "".join(lines) or '{"@context": {}}\n'


def as_message_events(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """Write the triples of emissions as server-sent events."""
    portions = emissions_of(hosted, after, follow=follow)
    return events(portions, lambda each: _data(_lines(each.rows)))


def _lines(rows: Iterable[Row]) -> str:
    terms = ([term for term in row if term] for row in rows)
    return "".join(f"{' '.join(each)} .\n" for each in terms)


def _data(lines: str) -> str:
    # Not `splitlines`: literals may have what that takes for line ends, as U+2028.
    return "".join(f"data: {line}\n" for line in lines.split("\n")[:-1]) or "data:\n"


def _document(lines: str) -> str:
    if not lines:
        return "{}\n"
    quads = parse_rdf(lines.encode(), ox.RdfFormat.N_QUADS)
    document = json.loads(ox.serialize(quads, format=ox.RdfFormat.JSON_LD) or b"")
    return json.dumps({"@graph": document} if isinstance(document, list) else document) + "\n"
