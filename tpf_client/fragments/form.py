"""The form of a dataset: make a fragment's URL from a pattern.

Source: Triple Pattern Fragments (Hydra W3C Community Group), section 3.2 "controls"; RFC 6570;
Hydra core, "explicit representation".
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final

import uritemplate
from uritemplate.variable import VariableValue

from annotations.instants import format_instant
from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, Variable, is_variable
from annotations.urls import parameter_of_term
from tpf_client.fragments.blank_nodes import to_wire

PATTERN_VARIABLES = tuple(Variable(name) for name in ("?s", "?p", "?o", "?g"))
"""What the variables of a pattern are called in a request, by their positions."""

_USUAL_BLOCK = 30
"""Rows of a block where the server does not say: the most in the paper's evaluation."""
_SHORT: Final = 2**9
_KNOWN: Final = 2**10
"""So many URLs of patterns of so many characters are remembered."""


_LONGEST: Final = 10_000
_MOST_PARTS: Final = 100
"""Expressions and variables of a template at most: each may be replaced by a long term."""


# The pages of a dataset all have the same one.
@lru_cache(maxsize=64)
def _template(text: str) -> uritemplate.URITemplate:
    if len(text) > _LONGEST:
        raise ValueError(f"more than {_LONGEST} characters")
    if text.count("{") + text.count(",") > _MOST_PARTS:
        raise ValueError(f"more than {_MOST_PARTS} variables")
    return uritemplate.URITemplate(text)


@dataclass(frozen=True, slots=True)
class Block:
    """Bindings that restrict a fragment (brTPF): distinct rows of askable terms.

    Source: Hartig and Buil-Aranda, *Bindings-Restricted Triple Pattern Fragments*, ODBASE 2016.
    """

    variables: tuple[Variable, ...]
    rows: tuple[tuple[Term, ...], ...]

    def __str__(self) -> str:
        rows = " ".join(f"({' '.join(to_wire(term) for term in row)})" for row in self.rows)
        return f"({' '.join(self.variables)}) {{ {rows} }}"


@dataclass(frozen=True, slots=True)
class Form:
    """The search form of a dataset: a template (RFC 6570) and names of its variables.

    Args:
        graph: ``None`` for triples only (TPF, not QPF).
        default_graph: the IRI of the default graph in a QPF form.
        values: variable of a block of bindings (brTPF).
        limit: variable of the page size.
        max_values: the most rows of a block.
        at: variable of a past instant, where the server keeps history.
    """

    template: str
    subject: str
    predicate: str
    object: str
    graph: str | None = None
    default_graph: str | None = None
    page: str | None = None
    values: str | None = None
    limit: str | None = None
    max_limit: int | None = None
    max_values: int | None = None
    at: str | None = None
    _expanded: uritemplate.URITemplate = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_expanded", _template(self.template))

    @property
    def block_size(self) -> int:
        """Return the most bindings per request; 1: blocks are not supported."""
        if self.values is None:
            return 1
        return _USUAL_BLOCK if self.max_values is None else max(self.max_values, 1)

    def large_page(self) -> dict[str, str]:
        """Return arguments of `url` for the largest pages."""
        if self.limit is None or self.max_limit is None:
            return {}
        return {self.limit: str(self.max_limit)}

    def as_of(self, instant: datetime | None) -> dict[str, str]:
        """Return arguments of `url` for another instant; ``None``: now."""
        if instant is None:
            return {}
        if self.at is None:
            raise ValueError("this form takes no instant")
        return {self.at: format_instant(instant)}

    def restricted(self, block: Block) -> dict[str, str]:
        """Return arguments of `url` for a block, with variables of `PATTERN_VARIABLES`."""
        if self.values is None:
            raise ValueError("this form takes no bindings")
        names = dict(zip(PATTERN_VARIABLES, self._parameters, strict=True))
        named = {names[each]: each for each in block.variables}
        return {**named, self.values: str(block)}

    @property
    def _parameters(self) -> Sequence[str]:
        return (self.subject, self.predicate, self.object, self.graph or "")

    def url(self, pattern: QuadPattern, extra: Mapping[str, str] | None = None) -> str:
        """Return the URL of a pattern's fragment, with `extra` template variables.

        Repeated variables are not expressed: filter the matches. `DEFAULT_GRAPH` needs a form with
        graphs.
        """
        if not extra and sum(map(len, pattern)) <= _SHORT:
            return _known_url(self, pattern)
        return self._url(pattern, extra or {})

    def _url(self, pattern: QuadPattern, extra: Mapping[str, str]) -> str:
        arguments: dict[str, VariableValue] = dict(extra)
        for name, term in (
            (self.subject, pattern.subject),
            (self.predicate, pattern.predicate),
            (self.object, pattern.object),
        ):
            if not is_variable(term):
                arguments[name] = parameter_of_term(to_wire(term))
        if self.graph is not None:
            if pattern.graph == DEFAULT_GRAPH:
                arguments[self.graph] = self.default_graph
            elif not is_variable(pattern.graph):
                arguments[self.graph] = parameter_of_term(to_wire(pattern.graph))
        return self._expanded.expand(arguments)


@lru_cache(_KNOWN)
def _known_url(form: Form, pattern: QuadPattern) -> str:
    return form._url(pattern, {})


# A SPARQL endpoint as a form: a fragment's URL is that of a CONSTRUCT.
#
# It is read like a server of fragments with one page each; blocks become VALUES. Source: SPARQL 1.1
# Protocol, section 2.1.1.

_BLOCK = 50
"""Rows of VALUES in one request: its URL stays below what servers take."""
_VALUES = "values"


@dataclass(frozen=True, slots=True)
class SparqlForm(Form):
    """A SPARQL endpoint; its default graph."""

    def url(self, pattern: QuadPattern, extra: Mapping[str, str] | None = None) -> str:
        terms = [
            name if is_variable(term) else to_wire(term)
            for name, term in zip(PATTERN_VARIABLES, pattern[:3], strict=False)
        ]
        triple = " ".join(terms)
        block = (extra or {}).get(_VALUES)
        values = f"VALUES {block} " if block else ""
        return self.asking(f"CONSTRUCT {{ {triple} }} WHERE {{ {values}{triple} }}")

    def asking(self, query: str) -> str:
        return self._expanded.expand({"query": query})


def sparql_form(endpoint: str) -> SparqlForm:
    """Return the form of an endpoint."""
    template = endpoint + ("{&query}" if "?" in endpoint else "{?query}")
    return SparqlForm(template, "s", "p", "o", values=_VALUES, max_values=_BLOCK)


def probe(form: SparqlForm) -> tuple[str, Quad]:
    """The URL of a question that only an endpoint answers, and its unpredictable answer."""
    nonce = Term(f'"{secrets.token_hex(8)}"')
    name = Term("<urn:x-probe>")
    url = form.asking(f"CONSTRUCT {{ {name} {name} {nonce} }} WHERE {{}}")
    return url, Quad(name, name, nonce)
