"""Parse RDF Patch in the body of a request, as one batch without its aborted transactions.

Source: *RDF Patch* of Apache Jena, https://jena.apache.org/documentation/rdf-patch/: a line for
each change, ``A`` or ``D`` with a triple or quad in the terms of N-Quads or with prefixes (``PA``,
``PD``), and ``TX``, ``TC``, ``TA`` around transactions.
"""

import re
from typing import Final, NamedTuple

from annotations.nesting import most_written
from annotations.terms import Quad
from tpf_server.errors import BodyError
from tpf_server.web.bodies import parse_body

PATCH_MEDIA_TYPES: Final = frozenset({"application/rdf-patch", "text/rdf-patch"})
_N_QUADS = "application/n-quads"
_LINE_END = re.compile(r"\r\n?|\n")
_PREFIX = re.compile(r'(?:"([^"]*)"|([^\s":<]*):?)[ \t]+<([^<>"\s]*)>[ \t]*\.?')
_NO_PREFIX = re.compile(r'(?:"([^"]*)"|([^\s":<]*):?)[ \t]*\.?')
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"'  # a literal
    r"|<[^<>\s]*>|_:[^\s<>\"]+|<<\(?|\)?>>|\^\^|@[A-Za-z0-9-]+|#.*|\s+|\.(?=\s|$)"
    r"|(?P<prefix>[^\s:<>\"@^#()]*):(?P<local>[^\s<>\"^()]*)"
)


class Patch(NamedTuple):
    """The net changes of a patch: of a quad that comes and goes, the last change."""

    added: list[Quad]
    withdrawn: list[Quad]


def parse_patch(body: bytes) -> Patch:
    """Return the changes of a patch; the message of a `BodyError` names the line."""
    try:
        # Not splitlines: a literal may have U+2028 and its like inside.
        lines = _LINE_END.split(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BodyError(f"the patch is not UTF-8: {error.reason}") from None
    reader = _Reader(most_written(len(body)))
    for number, line in enumerate(lines, 1):
        reader.read(number, line.strip())
    reader.end(len(lines))
    documents = ("\n".join(reader.document(sign, len(lines))).encode() for sign in ("A", "D"))
    return Patch(*(parse_body(document, _N_QUADS) for document in documents))


class _Reader:
    def __init__(self, most: int) -> None:
        self._most = most
        self._prefixes: dict[str, str] = {}
        self._changes: dict[str, tuple[str, int]] = {}
        """The last change of each quad as it is written: its sign, and its line."""
        self._before: dict[str, tuple[str, int] | None] | None = None
        """What the transaction that is open has changed, as it was before."""

    def read(self, number: int, line: str) -> None:
        if not line or line.startswith("#"):
            return
        code, _, rest = line.partition(" ")
        code, rest = code.rstrip("."), rest.strip()
        if code in ("A", "D"):
            statement = self._statement(number, rest)
            self._most -= len(statement)
            if self._most < 0:
                raise BodyError(
                    f"line {number}: with its prefixes written out, the patch is too long"
                )
            if self._before is not None:
                self._before.setdefault(statement, self._changes.get(statement))
            self._changes[statement] = code, number
        elif code == "PA" and (match := _PREFIX.fullmatch(rest)):
            self._prefixes[match[1] or match[2] or ""] = match[3]
        elif code == "PD" and (match := _NO_PREFIX.fullmatch(rest)):
            self._prefixes.pop(match[1] or match[2] or "", None)
        elif code == "TX" and self._before is None and not rest.strip("."):
            self._before = {}
        elif code in ("TC", "TA") and self._before is not None and not rest.strip("."):
            before, self._before = self._before, None
            for statement, change in before.items() if code == "TA" else ():
                if change is None:
                    del self._changes[statement]
                else:
                    self._changes[statement] = change
        elif code != "H":
            raise BodyError(f"line {number}: not a line of a patch here: {line[:100]}")

    def end(self, last: int) -> None:
        if self._before is not None:
            raise BodyError(f"line {last}: the patch ends in the midst of a transaction")

    def _statement(self, number: int, text: str) -> str:
        pieces, position = [], 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise BodyError(f"line {number}: not a term: {text[position : position + 100]}")
            position = match.end()
            prefix = match["prefix"]
            if prefix is None:
                pieces.append(match[0])
            elif prefix in self._prefixes:
                pieces.append(f"<{self._prefixes[prefix]}{match['local']}>")
            else:
                raise BodyError(f"line {number}: the prefix {prefix}: is not known")
        return "".join(pieces)

    def document(self, sign: str, length: int) -> list[str]:
        lines = [""] * length
        for statement, (code, number) in self._changes.items():
            if code == sign:
                lines[number - 1] = statement
        return lines
