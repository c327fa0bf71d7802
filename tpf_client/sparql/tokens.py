"""Split a SPARQL text into tokens (SPARQL 1.1, section 19.8, and 1.2)."""

import re
from functools import cache
from typing import NamedTuple

from tpf_client.errors import QuerySyntaxError


class Token(NamedTuple):
    """A token: its kind, text and offset."""

    kind: str
    text: str
    position: int

    @property
    def end(self) -> int:
        return self.position + len(self.text)


# Rules 164 to 173 of the grammar: the characters of names.
_BEYOND_ASCII = (
    "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_MARKS = "\u00b7\u0300-\u036f\u203f\u2040"
_HALF = re.compile("[\ud800-\udfff]")
_ESCAPED = r"%[0-9A-Fa-f]{2}|\\[_~.\-!$&'()*+,;=/?#@%]"


class _Patterns(NamedTuple):
    named: re.Pattern[str]
    other: re.Pattern[str]
    run: re.Pattern[str]


@cache
def _patterns(*, ascii_only: bool) -> _Patterns:
    """All characters of the grammar take long to compile; few texts need them."""
    start = "A-Za-z" if ascii_only else f"A-Za-z{_BEYOND_ASCII}"
    letter = f"{start}_0-9"
    marked = letter if ascii_only else f"{letter}{_MARKS}"
    name = rf"{marked}\-"
    # Possessive quantifiers, as nothing that they took is ever to be given back: then no text takes
    # longer than in proportion to its length. Dots belong to a name where more of it follows.
    prefix_rest = rf"[{name}]*+(?:\.++[{name}]++)*+"
    prefix = rf"[{start}]{prefix_rest}"
    label = rf"[{letter}]{prefix_rest}"
    local = (
        rf"(?:[{letter}:]|{_ESCAPED})(?:[{name}:]|{_ESCAPED})*+"
        rf"(?:\.++(?:[{name}:]|{_ESCAPED})++)*+"
    )
    other = re.compile(
        rf"""(?P<space>(?:[\ \t\r\n]|\#[^\r\n]*+)++)
        | (?P<iri><(?:[^<>"{{}}|^`\\\x00-\x20]|\\u[0-9A-Fa-f]{{4}}|\\U[0-9A-Fa-f]{{8}})*+>)
        | (?P<blank>_:{label})
        | (?P<variable>[?$][{letter}][{marked}]*+)
        | (?P<string>'''(?:'{{0,2}}+(?:[^'\\]|\\.))*+''' | \"\"\"(?:"{{0,2}}+(?:[^"\\]|\\.))*+\"\"\"
            | '(?!'')(?:[^'\\\n\r]|\\.)*+' | "(?!"")(?:[^"\\\n\r]|\\.)*+")
        | (?P<language>@[A-Za-z]++(?:-[A-Za-z0-9]++)*+(?:--(?:ltr|rtl))?)
        | (?P<double>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)[eE][+-]?[0-9]++)
        | (?P<decimal>[0-9]*+\.[0-9]++)
        | (?P<integer>[0-9]++)
        | (?P<word>[A-Za-z][A-Za-z0-9_]*+)
        | (?P<sign><<\(|\)>>|<<|>>|\{{\||\|\}}|~|\^\^|&&|\|\||!=|<=|>=|[{{}}()\[\];,.=<>!+\-*/|^?])
        """,
        re.VERBOSE | re.DOTALL,
    )
    return _Patterns(
        re.compile(rf"(?P<name>(?:{prefix})?+:(?:{local})?+)"),
        other,
        re.compile(rf"[{start}][{name}.]*+"),
    )


def tokenize(text: str) -> list[Token]:
    """Tokenize a text; the last token has the kind ``end``."""
    if half := _HALF.search(text):
        raise QuerySyntaxError("half of a surrogate pair is no character", text, half.start())
    patterns = _patterns(ascii_only=text.isascii())
    tokens = []
    position = 0
    # Up to here no name with a prefix begins: what could be one was read, and has no colon.
    nameless = 0
    while position < len(text):
        match = None
        if position >= nameless:
            match = patterns.named.match(text, position)
            if match is None:
                run = patterns.run.match(text, position)
                nameless = position if run is None else run.end()
        match = match or patterns.other.match(text, position)
        if match is None:
            what = "an unfinished string" if text[position] in "\"'" else repr(text[position])
            raise QuerySyntaxError(f"unexpected {what}", text, position)
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(Token(kind, match.group(), position))
        position = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_SHORT = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


def unescape(quoted: str) -> str:
    """Resolve escapes; `ValueError` for an unknown one or no character."""
    if "\\" not in quoted:
        return quoted

    def one(match: re.Match[str]) -> str:
        four, eight, short = match.groups()
        if short is not None:
            if short not in _SHORT:
                raise ValueError(f"there is no escape \\{short}")
            return _SHORT[short]
        code = int(four or eight, 16)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise ValueError(f"\\{'u' if four else 'U'}{four or eight} is not a character")
        return chr(code)

    return _ESCAPE.sub(one, quoted)


def string_content(token: str) -> str:
    """Return the content of a quoted string; `ValueError` as in `unescape`."""
    width = 3 if token[:3] in ("'''", '"""') and len(token) >= 6 else 1
    return unescape(token[width:-width])
