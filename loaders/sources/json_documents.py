"""JSON documents as RDF: JSON-LD, or other JSON with a context that says what it means.

Source: JSON-LD 1.1, section 3.1 "The Context": a context for JSON that has none may come from
elsewhere. Remote contexts are not fetched.
"""

import json
from collections.abc import Callable
from typing import Any

import pyoxigraph as ox

from annotations.errors import NestingError
from annotations.nesting import check_nesting
from annotations.terms import Quad, is_blank_node
from loaders.errors import InputError
from loaders.places import InputPlace
from tpf_server.store.static.ox_terms import read_quads
from tpf_server.store.static.rdf_files import NOWHERE, relative_iri

_TYPE = "application/ld+json"


def reader_of_json(context: InputPlace | None) -> Callable[[bytes, str], list[Quad]]:
    """A reader of documents.

    Args:
        context: a file with a context, or with a document that has one; it comes before the
            documents' own.

    Raises:
        InputError: the file cannot be read, or holds no context.
    """
    given = None if context is None else context_of(context)

    def read(content: bytes, place: str) -> list[Quad]:
        try:
            check_nesting((content,), _TYPE)
            if given is not None:
                content = _with_context(content, given, place)
        except NestingError as error:
            raise InputError(error.reason, place, error.line) from None
        except ValueError as error:
            raise InputError(f"no JSON-LD ({error})", place) from None
        return quads_of_json(content, place, place)

    return read


def quads_of_json(content: bytes, place: str, base: str | None) -> list[Quad]:
    """What a document of JSON-LD says.

    Args:
        content: the document.
        place: where it is from, for messages.
        base: what relative IRIs are resolved against; ``None``: they are refused.

    Raises:
        InputError: it is none, or has a remote context, or things without names.
    """
    try:
        parsed = read_quads(content, ox.RdfFormat.JSON_LD, base=base or NOWHERE)
        quads = [_named(quad, place) for quad in parsed]
    except NestingError as error:
        raise InputError(error.reason, place, error.line) from None
    except SyntaxError as error:
        raise InputError(f"no JSON-LD ({error.msg})", place) from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"no JSON-LD ({error})", place) from None
    for relative in filter(None, map(relative_iri, quads if base is None else ())):
        raise InputError(f"a relative IRI: {relative!r}", place)
    return quads


def context_of(file: InputPlace) -> Any:
    """The context in a file, or that of the document in it.

    Raises:
        InputError: the file cannot be read, or holds no context.
    """
    try:
        document = json.loads(file.read_bytes())
    except InputError:
        raise
    except OSError as error:
        raise InputError(error.strerror or str(error), str(file)) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error})", str(file)) from None
    if not isinstance(document, dict):
        raise InputError("no context: not an object of JSON", str(file))
    return document.get("@context", document)


def _with_context(content: bytes, context: Any, place: str) -> bytes:
    document = json.loads(content)
    entries = document if isinstance(document, list) else [document]
    made = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise InputError("no JSON-LD (an entry is not an object)", place)
        own = entry.get("@context", [])
        both = [context, *(own if isinstance(own, list) else [own])]
        made.append({**entry, "@context": both})
    return json.dumps(made).encode()


def _named(quad: Quad, place: str) -> Quad:
    if is_blank_node(quad.subject) or is_blank_node(quad.object):
        # It would be another one with every poll.
        raise InputError(f"a thing without an @id ({quad.predicate} of it)", place)
    return quad
