"""Terms as HTML: abbreviated, clickable, safe."""

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

from markupsafe import Markup, escape

from annotations.methods.names import parameter_of_term
from annotations.namespaces import (
    DCTERMS,
    FOAF,
    HYDRA,
    RDF,
    RDFS,
    SD,
    SINGLETON,
    TEMPORAL,
    VOID,
    XSD,
)
from annotations.terms import DEFAULT_GRAPH, literal_parts

_WELL_KNOWN = {
    "rdf": RDF, "rdfs": RDFS, "xsd": XSD, "foaf": FOAF, "void": VOID, "hydra": HYDRA, "sd": SD,
    "dcterms": DCTERMS, "tmp": TEMPORAL, "sp": SINGLETON,
}  # fmt: skip
_KEPT_CELLS = 4096


class TermCells:
    """Shows the terms of one endpoint.

    Args:
        url: the endpoint's URL, which terms are linked to.
        base: URL of this server.
        prefixes: prefix to namespace.
    """

    def __init__(self, url: str, base: str, prefixes: Mapping[str, str]) -> None:
        self._url = url
        self._base = base
        self._namespaces = sorted(
            ((namespace, prefix) for prefix, namespace in {**_WELL_KNOWN, **prefixes}.items()),
            key=lambda pair: -len(pair[0]),
        )
        self.cell = lru_cache(maxsize=_KEPT_CELLS)(self._cell)

    def _cell(self, position: str, term: str) -> str:
        """The content of a table's cell: the term, linked to what else it occurs in."""
        if term == DEFAULT_GRAPH:
            return ""
        parameter = parameter_of_term(term)
        link = f"{self._url}?{position}={quote(parameter, safe='')}"
        if term.startswith('"'):
            lexical, language, datatype = literal_parts(term)
            kind = f"@{language}" if language else self._datatype(term, datatype)
            shown = f'<a href="{escape(link)}">"{escape(lexical)}"</a>'
            return f'{shown} <span class="kind">{escape(kind)}</span>' if kind else shown
        if term.startswith("<<("):
            return f'<a href="{escape(link)}">{escape(term)}</a>'
        iri = term[1:-1]
        cell = f'<a href="{escape(link)}" title="{escape(iri)}">{escape(self.abbreviate(iri))}</a>'
        # What this server minted stands for facts, not for pages of its own.
        if iri.startswith(("http://", "https://")) and not iri.startswith(self._base):
            cell += (
                f'<a class="out" href="{escape(iri)}" rel="nofollow noreferrer" '
                f'aria-label="open {escape(iri)}">↗</a>'
            )
        return cell

    def abbreviate(self, iri: str) -> str:
        """The IRI as ``prefix:name`` where a prefix fits, else itself."""
        for namespace, prefix in self._namespaces:
            if iri.startswith(namespace) and "/" not in (name := iri[len(namespace) :]):
                return f"{prefix}:{name}"
        return iri

    def _datatype(self, term: str, datatype: str) -> str:
        return self.abbreviate(datatype) if term.endswith(">") else ""


def table_rows(lines: list[str]) -> Markup:
    """Rows that are made of cells above, which are escaped."""
    return Markup("".join(lines))  # noqa: S704
