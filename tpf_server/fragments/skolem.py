"""Blank nodes as IRIs that come back.

A page is one document of many, and a blank node means nothing outside its document. So blank nodes
of the data are shown as IRIs below ``/.well-known/genid/`` (RDF 1.1 Concepts, section 3.5), and
such an IRI in a request is understood as the blank node again.
"""

import re
from collections.abc import Callable
from urllib.parse import quote, unquote

from annotations.errors import TermError
from annotations.terms import Quad, Term, blank_node

# What is read is never taken back: many texts without an end would take quadratic time.
_IN_TRIPLE_TERM = re.compile(
    r'"(?:[^"\\]++|\\.)*+"?|(<[^<>\x00-\x20]*+>)|(_:[^\x00-\x20<>"]++)', re.DOTALL
)
_IRI, _BLANK = 1, 2


def names_blank_node(term: str) -> bool:
    """Whether a term is a blank node, or a triple term with one inside."""
    if term.startswith("<<("):
        return any(found.lastindex == _BLANK for found in _IN_TRIPLE_TERM.finditer(term))
    return term.startswith("_:")


def _replaced(term: Term, kind: int, replace: Callable[[Term], Term]) -> Term:
    """A triple term with its IRIs or its blank nodes replaced, at any depth."""

    def one(found: re.Match[str]) -> str:
        return replace(Term(found[0])) if found.lastindex == kind else found[0]

    return Term(_IN_TRIPLE_TERM.sub(one, term))


class Skolemizer:
    """Blank nodes of one dataset to IRIs and back.

    Args:
        prefix: absolute IRI that those IRIs start with.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._opening = f"<{prefix}"

    def terms(self, terms: list[Term]) -> list[Term]:
        """The terms as they are shown; the same list where no blank node can be in them."""
        if "_:" not in "\n".join(terms):
            return terms
        return [self.term(term) for term in terms]

    def quad(self, quad: Quad) -> Quad:
        """The quad as it is shown."""
        for term in quad:
            if term.startswith(("_:", "<<(")):
                return Quad(*[self.term(part) for part in quad])
        return quad

    def term(self, term: Term) -> Term:
        """The term as it is shown."""
        if term.startswith("_:"):
            return Term(f"<{self.prefix}{quote(term[2:], safe='')}>")
        if term.startswith("<<(") and "_:" in term:
            return _replaced(term, _BLANK, self.term)
        return term

    def restore(self, term: Term) -> Term:
        """The term as it is stored.

        Raises:
            TermError: it is, or holds, an IRI below `prefix` that names no blank node.
        """
        if term.startswith("<<("):
            return _replaced(term, _IRI, self._restored) if self.prefix in term else term
        return self._restored(term)

    def _restored(self, term: Term) -> Term:
        if not term.startswith(self._opening):
            return term
        # Whatever stands in the name would stand in pages, so nothing but a label may.
        node = blank_node(unquote(term[len(self._opening) : -1]))
        if self.term(node) != term:
            raise TermError(f"this names no blank node: {term}")
        return node

    def restore_quad(self, quad: Quad) -> Quad:
        """The quad as it is stored.

        Raises:
            TermError: a term holds an IRI below `prefix` that names no blank node, or the predicate
                is one that does.
        """
        subject, predicate, value, graph = quad
        if predicate.startswith(self._opening):
            raise TermError(f"a blank node cannot be a predicate: {predicate}")
        return Quad(self.restore(subject), predicate, self.restore(value), self.restore(graph))
