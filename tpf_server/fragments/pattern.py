"""Read the parameters of a fragment's URL into a quad pattern.

Terms have the form of ``hydra:ExplicitRepresentation``; also accepted are names with a configured
prefix, triple terms, and variables: absent, empty or ``?name``. A name that occurs twice requires
equal terms.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from urllib.parse import quote, unquote

from annotations.errors import TermError
from annotations.terms import (
    DEFAULT_GRAPH,
    MAX_NESTING,
    Quad,
    QuadPattern,
    Term,
    TermOrVariable,
    Triple,
    Variable,
    blank_node,
    is_iri,
    triple_term,
    variable,
)
from annotations.urls import term_of_parameter
from tpf_server.errors import TermSyntaxError

# Blank nodes as IRIs that come back.
#
# A page is one document of many, and a blank node means nothing outside its document. So blank
# nodes of the data are shown as IRIs below ``/.well-known/genid/`` (RDF 1.1 Concepts, section
# 3.5), and such an IRI in a request is understood as the blank node again.

# What is read is never taken back: many texts without an end would take quadratic time.
_IN_TRIPLE_TERM = re.compile(
    r'"(?:[^"\\]++|\\.)*+"?|(<[^<>\x00-\x20]*+>)|(_:[^\x00-\x20<>"]++)', re.DOTALL
)
_IRI, _BLANK = 1, 2


def names_blank_node(term: str) -> bool:
    """True for a blank node, or a triple term with one inside."""
    if term.startswith("<<("):
        return any(entry.lastindex == _BLANK for entry in _IN_TRIPLE_TERM.finditer(term))
    return term.startswith("_:")


def _replaced(term: Term, kind: int, replace: Callable[[Term], Term]) -> Term:
    def one(match: re.Match[str]) -> str:
        return replace(Term(match[0])) if match.lastindex == kind else match[0]

    return Term(_IN_TRIPLE_TERM.sub(one, term))


class Skolemizer:
    """Translate blank nodes of one dataset to IRIs and back."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._opening = f"<{prefix}"

    def terms(self, terms: list[Term]) -> list[Term]:
        """Return the terms as shown; the same list where none can be a blank node."""
        if "_:" not in "\n".join(terms):
            return terms
        return [self.term(term) for term in terms]

    def quad(self, quad: Quad) -> Quad:
        for term in quad:
            if term.startswith(("_:", "<<(")):
                return Quad(*[self.term(part) for part in quad])
        return quad

    def term(self, term: Term) -> Term:
        if term.startswith("_:"):
            return Term(f"<{self.prefix}{quote(term[2:], safe='')}>")
        if term.startswith("<<(") and "_:" in term:
            return _replaced(term, _BLANK, self.term)
        return term

    def restore(self, term: Term) -> Term:
        """Return the term as stored; refuse an IRI below `prefix` that names no blank node."""
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
        subject, predicate, value, graph = quad
        if predicate.startswith(self._opening):
            raise TermError(f"a blank node cannot be a predicate: {predicate}")
        return Quad(self.restore(subject), predicate, self.restore(value), self.restore(graph))


DEFAULT_GRAPH_IRI = Term("<urn:ldf:defaultGraph>")

POSITIONS = ("subject", "predicate", "object", "graph")

# No request can name these, so that they are equal to no variable of the request.
_FRESH = {position: Variable(f"?.{position}") for position in POSITIONS}
_OFTEN = 512
"""Terms that are remembered: predicates and the like come again and again."""
_SHORT = 256
"""Most characters of these."""
_COMPACT_TRIPLE = re.compile(r"<<(?!\()([^ ]+) ([^ ]+) (.+)>>", re.DOTALL)
_WEB_IRI = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]*+://[^\x00-\x20<>"{}|^`\\]*+""")
"""A bare IRI that no prefix can be meant in."""
_PREFIXED = re.compile(r"([A-Za-z][\w-]*)?:(?!//)(.*)", re.DOTALL)


class PatternReader:
    """Read the terms of requests to one dataset."""

    def __init__(self, prefixes: Mapping[str, str], skolemizer: Skolemizer) -> None:
        self._prefixes = prefixes
        self.skolemizer = skolemizer
        self._read_often = lru_cache(maxsize=_OFTEN)(self._read)

    def pattern(self, parameters: Mapping[str, str]) -> QuadPattern:
        """Return the pattern of the parameters subject, predicate, object and graph."""
        terms = [self.term(name, parameters.get(name, "")) for name in POSITIONS]
        if terms[3] == DEFAULT_GRAPH_IRI:
            terms[3] = DEFAULT_GRAPH
        return QuadPattern(*terms)

    def term(self, position: str, text: str) -> TermOrVariable:
        """Return the term or variable of a parameter; `TermSyntaxError` for a blank node, too."""
        if not text:
            return _FRESH[position]
        if _WEB_IRI.fullmatch(text) and not text.startswith(self.skolemizer.prefix):
            return Term(f"<{text}>")
        return (self._read_often if len(text) <= _SHORT else self._read)(position, text)

    def _read(self, position: str, text: str) -> TermOrVariable:
        try:
            if text[0] == "?":
                return variable(text[1:])
            return self.skolemizer.restore(self._term(text))
        except TermError as error:
            hint = ""
            if position == "object" and text[0] not in '"<_':
                # People forget them more often than anything else.
                hint = f'; a text has quotation marks: "{text}"'
            raise TermSyntaxError(position, text, f"{error}{hint}") from None

    def _term(self, text: str, depth: int = 0) -> Term:
        if text[0] == '"':
            # Prefixes are read in datatypes too.
            before, carets, datatype = text.rpartition("^^")
            if carets and before.endswith('"') and before != '"' and '"' not in datatype:
                text = f"{before}^^{self._expand(datatype)}"
        elif text[0] not in "<_":
            text = self._expand(text)
        elif (compact := _COMPACT_TRIPLE.fullmatch(text)) is not None:
            if depth == MAX_NESTING:
                raise TermError(f"triple terms are nested more than {MAX_NESTING} deep")
            triple = Triple(*[self._term(part, depth + 1) for part in compact.groups()])
            if not (is_iri(triple.subject) and is_iri(triple.predicate)):
                raise TermError("the subject and predicate of a triple term are IRIs")
            return triple_term(triple)
        elif names_blank_node(text):
            raise TermError("a blank node has no name outside its page; ask for its IRI")
        return term_of_parameter(text)

    def _expand(self, text: str) -> str:
        match = _PREFIXED.fullmatch(text)
        if match is not None:
            namespace = self._prefixes.get(match[1] or "")
            if namespace is not None:
                return namespace + match[2]
        return text
