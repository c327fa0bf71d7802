"""A SPARQL endpoint in the place of a form: the URL of a fragment is that of a CONSTRUCT.

So an endpoint is read like a server of fragments, page by page of one page each, with the same
limits, caches and freshness by HTTP. Blocks of bindings become VALUES. Source: SPARQL 1.1 Protocol,
section 2.1.1 (query via GET).
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from annotations.terms import Quad, QuadPattern, Term, is_variable
from tpf_client.fragments.blank_nodes import to_wire
from tpf_client.fragments.form import PATTERN_VARIABLES, Form

_BLOCK = 50
"""Rows of VALUES in one request: its URL stays below what servers take."""
_VALUES = "values"


@dataclass(frozen=True, slots=True)
class SparqlForm(Form):
    """A SPARQL endpoint; its default graph."""

    def url(self, pattern: QuadPattern, extra: Mapping[str, str] | None = None) -> str:
        """The URL of the query for a pattern; its variables stay open."""
        terms = [
            name if is_variable(term) else to_wire(term)
            for name, term in zip(PATTERN_VARIABLES, pattern[:3], strict=False)
        ]
        triple = " ".join(terms)
        block = (extra or {}).get(_VALUES)
        values = f"VALUES {block} " if block else ""
        return self.asking(f"CONSTRUCT {{ {triple} }} WHERE {{ {values}{triple} }}")

    def asking(self, query: str) -> str:
        """The URL of a query."""
        return self._expanded.expand({"query": query})


def sparql_form(endpoint: str) -> SparqlForm:
    """The form of an endpoint at a URL."""
    template = endpoint + ("{&query}" if "?" in endpoint else "{?query}")
    return SparqlForm(template, "s", "p", "o", values=_VALUES, max_values=_BLOCK)


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that only an endpoint answers: what it says was not known to anybody.

    Args:
        url: of the question.
        answer: the quad that it is answered with.
    """

    url: str
    answer: Quad


def probe(form: SparqlForm) -> Probe:
    """A question for an endpoint."""
    said = Term(f'"{secrets.token_hex(8)}"')
    name = Term("<urn:x-probe>")
    return Probe(
        form.asking(f"CONSTRUCT {{ {name} {name} {said} }} WHERE {{}}"), Quad(name, name, said)
    )
