"""The words of a SPARQL text, each with its place.

Source: SPARQL 1.1 Query Language, section 19.8 (terminals). Signs of numbers are words of their
own; the parser puts them together where the grammar has a signed number.
"""

import re
from typing import NamedTuple

from tpf_client.errors import QuerySyntaxError


class Token(NamedTuple):
    """A word: its kind, its text and the index of its first character."""

    kind: str
    text: str
    position: int

    @property
    def end(self) -> int:
        """Index of the character after the word."""
        return self.position + len(self.text)


_LOCAL_ESCAPE = r"\\[_~.\-!$&'()*+,;=/?#@%]"
_LOCAL_PART = rf"(?:[\w:·]|%[0-9A-Fa-f]{{2}}|{_LOCAL_ESCAPE})"
_LOCAL_INNER = rf"(?:[\w:·.-]|%[0-9A-Fa-f]{{2}}|{_LOCAL_ESCAPE})"
_LOCAL_LAST = rf"(?:[\w:·-]|%[0-9A-Fa-f]{{2}}|{_LOCAL_ESCAPE})"

_TOKEN = re.compile(
    rf"""(?P<space>(?:[\ \t\r\n]|\#[^\r\n]*)+)
    | (?P<iri><(?:[^<>"{{}}|^`\\\x00-\x20]|\\u[0-9A-Fa-f]{{4}}|\\U[0-9A-Fa-f]{{8}})*>)
    | (?P<blank>_:[\w](?:[\w·.-]*[\w·-])?)
    | (?P<name>(?:[^\W\d_](?:[\w·.-]*[\w·-])?)?:(?:{_LOCAL_PART}(?:{_LOCAL_INNER}*{_LOCAL_LAST})?)?)
    | (?P<variable>[?$][\w·]+)
    | (?P<string>'''(?:(?:'|'')?(?:[^'\\]|\\.))*''' | \"\"\"(?:(?:"|"")?(?:[^"\\]|\\.))*\"\"\"
        | '(?:[^'\\\n\r]|\\.)*' | "(?:[^"\\\n\r]|\\.)*")
    | (?P<language>@[A-Za-z]+(?:-[A-Za-z0-9]+)*(?:--(?:ltr|rtl))?)
    | (?P<double>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)[eE][+-]?[0-9]+)
    | (?P<decimal>[0-9]*\.[0-9]+)
    | (?P<integer>[0-9]+)
    | (?P<word>[A-Za-z][A-Za-z0-9_]*)
    | (?P<sign>\^\^|&&|\|\||!=|<=|>=|[{{}}()\[\];,.=<>!+\-*/|^?])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> list[Token]:
    """The words of a text, blanks and comments left out; the last one has the kind ``end``.

    Raises:
        QuerySyntaxError: a character that begins no word.
    """
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
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
    """The characters that an escaped text stands for.

    Raises:
        ValueError: an escape that SPARQL does not know, or not a character.
    """
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
    """What a quoted string means, its quotes taken off.

    Raises:
        ValueError: see `unescape`.
    """
    width = 3 if token[:3] in ("'''", '"""') and len(token) >= 6 else 1
    return unescape(token[width:-width])
