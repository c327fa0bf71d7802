"""Which of the two languages a text is written in."""

from itertools import pairwise
from typing import Final

from tpf_client.errors import QuerySyntaxError
from tpf_client.sparql.tokens import Token, tokenize

CSPARQL: Final = "csparql"
"""What the semantics of C-SPARQL are called, where CQELS-QL has names of policies."""


def is_csparql(text: str) -> bool:
    """Whether a text has a clause that only C-SPARQL has: REGISTER, or FROM [NAMED] STREAM."""
    try:
        tokens = tokenize(text)
    except QuerySyntaxError:
        return False  # it is no query in either language
    return any(
        (_is(one, "REGISTER") and _is(other, "QUERY", "STREAM"))
        or (_is(one, "FROM", "NAMED") and _is(other, "STREAM"))
        for one, other in pairwise(tokens)
    )


def _is(token: Token, *words: str) -> bool:
    return token.kind == "word" and token.text.upper() in words
