"""Bodies that nest without end, or that grow when they are read.

The parser of RDF reads a body in one go, with all else waiting for it. Triple terms that are nested
ten thousand times end the process; nested JSON and XML takes time that grows with the square of its
depth; and an entity of XML that repeats another one ten times, and so on, takes all memory that
there is. So a body is looked over before it is parsed.
"""

import re
from typing import Final
from xml.parsers import expat

from pyoxigraph import RdfFormat

from annotations.terms import MAX_NESTING
from tpf_server.errors import BodyError

_TURTLE: Final = re.compile(
    rb'"""(?:[^"\\]|\\.|"(?!""))*"""|' + rb"'''(?:[^'\\]|\\.|'(?!''))*'''|"
    rb'"(?:[^"\\\n]|\\.)*"|' + rb"'(?:[^'\\\n]|\\.)*'|"
    rb"<(?!<)[^<>\s]*>|#[^\n]*|(?P<open><<\()|(?P<close>\)>>)",
    re.DOTALL,
)
_JSON: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|(?P<open>[\[{])|(?P<close>[\]}])', re.DOTALL)


def check_nesting(body: bytes, rdf_format: RdfFormat) -> None:
    """See to it that a body can be parsed without harm.

    Raises:
        BodyError: it is nested deeper than `MAX_NESTING`, or declares entities of XML.
    """
    if rdf_format == RdfFormat.RDF_XML:
        _check_xml(body)
    elif rdf_format == RdfFormat.JSON_LD:
        _check(body, _JSON)
    elif body.count(b"<<(") > MAX_NESTING:
        # Most bodies have no triple term at all.
        _check(body, _TURTLE)


def _check(body: bytes, tokens: "re.Pattern[bytes]") -> None:
    depth = 0
    for token in tokens.finditer(body):
        if token.lastgroup == "open":
            depth += 1
            if depth > MAX_NESTING:
                line = body.count(b"\n", 0, token.start()) + 1
                raise BodyError(f"line {line}: nested more than {MAX_NESTING} deep")
        elif token.lastgroup == "close":
            depth -= 1


def _check_xml(body: bytes) -> None:
    parser = expat.ParserCreate()
    depth = 0

    def start(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_NESTING:
            raise BodyError(f"line {parser.CurrentLineNumber}: nested more than {MAX_NESTING} deep")

    def end(_: object) -> None:
        nonlocal depth
        depth -= 1

    def declare(*_: object) -> None:
        raise BodyError(f"line {parser.CurrentLineNumber}: entities are not read; write IRIs out")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = declare
    try:
        parser.Parse(body, True)
    except expat.ExpatError as error:
        raise BodyError(f"line {error.lineno}: {expat.ErrorString(error.code)}") from None
