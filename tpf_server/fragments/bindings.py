"""The ``values`` parameter of bindings-restricted fragments (brTPF).

``(?x ?y) { (<a> "b") (<c> UNDEF) }``: only matches that are compatible with one of these rows are
wanted. The variables are those of the request (``subject=?x``); an open position that the request
does not name is called like itself (``?subject``). Others say nothing about the pattern and are
left out. Terms are in N-Triples form. A row with fewer terms than there are variables matches
nothing: Comunica says so that there are no bindings.

Source: Hartig and Buil-Aranda, *Bindings-Restricted Triple Pattern Fragments*, ODBASE 2016.

Counts of patterns add up where no two of them have a match in common. Rows without ``UNDEF`` give
such patterns; of the others, one that contains another stands for both, and two that overlap
otherwise are answered by the least pattern that contains both: more than was asked for, which a
client that joins the answer with its bindings does not notice.
"""

import re
from collections.abc import Iterable, Iterator

from annotations.errors import TermError
from annotations.terms import (
    QuadPattern,
    Term,
    TermOrVariable,
    Variable,
    iri,
    is_variable,
    literal,
    literal_parts,
)
from tpf_server.errors import RequestError, TermSyntaxError
from tpf_server.fragments.skolem import Skolemizer

_HEAD = re.compile(r"\s*\(([\s\w?]*)\)\s*\{")
_NAME = re.compile(r"\?\w+")
_WORD = re.compile(
    r"\s*+(?:([()}])|(UNDEF)|(<[^<>\x00-\x20]*+>|"
    r'"(?:[^"\\]++|\\.)*+"(?:@[A-Za-z0-9-]++|\^\^<[^<>\x00-\x20]*+>)?))\s*+',
    re.DOTALL,
)
_SHOWN = 80
"""Characters of a malformed value that an error quotes."""


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
        RequestError: malformed, or too many rows.
        TermSyntaxError: a row holds a malformed term.
    """
    head = _HEAD.match(text)
    names = [] if head is None else head[1].split()
    if head is None or not all(map(_NAME.fullmatch, names)):
        raise RequestError(f'values is (?x ?y) {{ (<a> "b") … }}, not {text[:_SHOWN]!r}')
    rows = list(_rows(text, head.end(), len(names), skolemizer))
    if len(rows) > max_rows:
        raise RequestError(f"values has at most {max_rows} rows, not {len(rows)}")
    variables = [_variable(name, pattern) for name in names]
    patterns: dict[QuadPattern, None] = {}
    alike = True
    for row in rows:
        bound: dict[TermOrVariable, Term] = {}
        fits = len(row) == len(names)
        for variable, term in zip(variables, row, strict=False):
            if variable is not None and term is not None:
                fits = fits and bound.setdefault(variable, term) == term
        if fits:
            patterns[QuadPattern(*[bound.get(term, term) for term in pattern])] = None
            alike = alike and None not in row
    return tuple(patterns if alike else _disjoint(patterns))


def _variable(name: str, pattern: QuadPattern) -> TermOrVariable | None:
    """The variable of the pattern that a name means, if any."""
    if name in pattern:
        return Variable(name)
    position = name[1:]
    if position in QuadPattern._fields and is_variable(getattr(pattern, position)):
        return Variable(getattr(pattern, position))
    return None


def _rows(
    text: str, position: int, width: int, skolemizer: Skolemizer
) -> Iterator[list[Term | None]]:
    row: list[Term | None] | None = None
    while True:
        word = _WORD.match(text, position)
        if word is None:
            raise RequestError(f"values: not a term: {text[position : position + _SHOWN]!r}")
        mark, undefined, term = word.groups()
        if mark == "}" and row is None and word.end() == len(text):
            return
        if mark == "(" and row is None:
            row = []
        elif mark == ")" and row is not None:
            yield row
            row = None
        elif mark is None and row is not None and len(row) < width:
            row.append(None if undefined else _term(term, skolemizer))
        else:
            raise RequestError(f"values: not expected: {text[position : position + _SHOWN]!r}")
        position = word.end()


def _term(text: str, skolemizer: Skolemizer) -> Term:
    try:
        if text[0] == "<":
            return skolemizer.restore(iri(text[1:-1]))
        lexical, language, datatype = literal_parts(text)
        return literal(lexical, language, None if language else datatype)
    except (TermError, ValueError) as error:
        raise TermSyntaxError("values", text, str(error)) from None


def _disjoint(patterns: Iterable[QuadPattern]) -> list[QuadPattern]:
    """Patterns without common matches that together have all matches of these.

    Args:
        patterns: instances of one pattern, so that variables stand in equal positions.
    """
    apart: list[QuadPattern] = []
    for each in patterns:
        pattern, k = each, 0
        while k < len(apart):
            if _meet(pattern, apart[k]):
                pattern = _general(pattern, apart.pop(k))
                k = 0
            else:
                k += 1
        apart.append(pattern)
    return apart


def _meet(one: QuadPattern, other: QuadPattern) -> bool:
    return all(a == b or is_variable(a) or is_variable(b) for a, b in zip(one, other, strict=True))


def _general(one: QuadPattern, other: QuadPattern) -> QuadPattern:
    """The least pattern that contains two that meet: what one of them leaves open is open."""
    return QuadPattern(*[a if is_variable(a) else b for a, b in zip(one, other, strict=True)])
