"""Which of the languages of continuous queries a text is written in."""

from itertools import pairwise
from typing import Final

from tpf_client.errors import QuerySyntaxError
from tpf_client.sparql.tokens import Token, tokenize

CSPARQL: Final = "csparql"
"""What the semantics of C-SPARQL are called, where CQELS-QL has names of policies."""
RSPQL: Final = "rspql"
"""What those of RSP-QL are called."""
_NAMES: Final = {CSPARQL: "C-SPARQL", RSPQL: "RSP-QL"}


def called(semantics: str | None) -> str:
    """The name of the language that has these semantics."""
    return _NAMES.get(semantics or "", "CQELS-QL")


def semantics_of(text: str) -> str | None:
    """The semantics of a text with a clause that only one language has; ``None``: CQELS-QL.

    In C-SPARQL that is REGISTER QUERY or STREAM, or FROM [NAMED] STREAM; in RSP-QL REGISTER with
    another word, or FROM NAMED WINDOW.
    """
    try:
        tokens = tokenize(text)
    except QuerySyntaxError:
        return None  # it is no query in any language
    pairs = list(pairwise(tokens))
    if any(
        (_is(one, "REGISTER") and _is(other, "ISTREAM", "DSTREAM", "RSTREAM"))
        or (_is(one, "FROM", "NAMED") and _is(other, "WINDOW"))
        for one, other in pairs
    ):
        return RSPQL
    if any(
        (_is(one, "REGISTER") and _is(other, "QUERY", "STREAM"))
        or (_is(one, "FROM", "NAMED") and _is(other, "STREAM"))
        for one, other in pairs
    ):
        return CSPARQL
    return None


def name_in(text: str) -> str | None:
    """What a text with REGISTER calls its query, whether or not it can be parsed."""
    try:
        tokens = tokenize(text)
    except QuerySyntaxError:
        return None
    for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if _is(first, "REGISTER") and second.kind == "word" and third.kind in ("word", "iri"):
            return third.text.strip("<>")
    return None


def _is(token: Token, *words: str) -> bool:
    return token.kind == "word" and token.text.upper() in words
