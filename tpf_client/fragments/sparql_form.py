"""A SPARQL endpoint as a form: a fragment's URL is that of a CONSTRUCT.

It is read like a server of fragments with one page each; blocks become VALUES. Source: SPARQL 1.1
Protocol, section 2.1.1.
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
        """Return the URL of a pattern's query."""
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
    """Return the form of an endpoint."""
    template = endpoint + ("{&query}" if "?" in endpoint else "{?query}")
    return SparqlForm(template, "s", "p", "o", values=_VALUES, max_values=_BLOCK)


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that only an endpoint answers: its `answer` is unpredictable."""

    url: str
    answer: Quad


def probe(form: SparqlForm) -> Probe:
    """A question for an endpoint."""
    said = Term(f'"{secrets.token_hex(8)}"')
    name = Term("<urn:x-probe>")
    return Probe(
        form.asking(f"CONSTRUCT {{ {name} {name} {said} }} WHERE {{}}"), Quad(name, name, said)
    )
