"""The ``values`` parameter of bindings-restricted fragments (brTPF).

``(?x ?y) { (<a> "b") (<c> "d") }``: only matches that are compatible with one of these rows are
wanted. The variables are those of the request (``subject=?x``); an open position that the request
does not name is called like itself (``?subject``). Terms are in N-Triples form.

Source: Hartig and Buil-Aranda, *Bindings-Restricted Triple Pattern Fragments*, ODBASE 2016.
``UNDEF`` is not allowed, so different rows match different quads and their counts add up.
"""

import re

from annotations.errors import TermError
from annotations.terms import (
    QuadPattern,
    Term,
    Variable,
    iri,
    is_variable,
    literal,
    literal_parts,
)
from tpf_server.errors import RequestError, TermSyntaxError
from tpf_server.fragments.skolem import Skolemizer

_BLOCK = re.compile(r"\s*\(((?:\s*\?\w+)+)\s*\)\s*\{(.*)\}\s*", re.DOTALL)
_ROW = re.compile(
    r"""\s*\(((?:\s*(?:<[^<>\s]*>|"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^<>\s]*>)?))+)\s*\)\s*""",
    re.DOTALL,
)
_TERM = re.compile(r'<[^<>\s]*>|"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^<>\s]*>)?', re.DOTALL)


def restricted(
    pattern: QuadPattern, text: str, skolemizer: Skolemizer, max_rows: int
) -> tuple[QuadPattern, ...]:
    """The patterns whose matches are the restricted matches: disjoint, in the order of the rows.

    Args:
        pattern: what the other parameters ask for.
        text: the parameter's value.
        skolemizer: turns the IRIs of blank nodes back to blank nodes.
        max_rows: the most rows that are allowed.

    Raises:
        RequestError: malformed, too many rows, or a variable that the pattern does not have.
        TermSyntaxError: a row holds a malformed term.
    """
    block = _BLOCK.fullmatch(text)
    if block is None:
        raise RequestError(f'values is (?x ?y) {{ (<a> "b") … }}, not {text!r}')
    names = [_variable(name, pattern) for name in block[1].split()]
    rows = _rows(block[2], len(names), skolemizer)
    if len(rows) > max_rows:
        raise RequestError(f"values has at most {max_rows} rows, not {len(rows)}")
    patterns: dict[QuadPattern, None] = {}
    for row in rows:
        bound = dict(zip(names, row, strict=True))
        if len(bound) < len(names) and any(bound[n] != t for n, t in zip(names, row, strict=True)):
            continue
        patterns[QuadPattern(*[bound.get(term, term) for term in pattern])] = None
    return tuple(patterns)


def _variable(name: str, pattern: QuadPattern) -> str:
    if name in pattern:
        return name
    position = name[1:]
    if position in QuadPattern._fields and is_variable(getattr(pattern, position)):
        return Variable(getattr(pattern, position))
    raise RequestError(f"values names {name}, which is no variable of the pattern")


def _rows(text: str, width: int, skolemizer: Skolemizer) -> list[list[Term]]:
    rows = []
    position = 0
    while position < len(text.rstrip()):
        found = _ROW.match(text, position)
        if found is None:
            raise RequestError(f"values: not a row of terms: {text[position : position + 80]!r}")
        terms = [_term(term, skolemizer) for term in _TERM.findall(found[1])]
        if len(terms) != width:
            raise RequestError(f"values: {width} terms are due in {found[0].strip()!r}")
        rows.append(terms)
        position = found.end()
    return rows


def _term(text: str, skolemizer: Skolemizer) -> Term:
    try:
        if text[0] == "<":
            return skolemizer.restore(iri(text[1:-1]))
        lexical, language, datatype = literal_parts(text)
        return literal(lexical, language, None if language else datatype)
    except (TermError, ValueError) as error:
        raise TermSyntaxError("values", text, str(error)) from None
