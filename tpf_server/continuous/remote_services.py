"""What SERVICE clauses ask of fragment servers and SPARQL endpoints, read again and again.

Of a fragment server the fragment of each triple pattern is read, by the form that its pages have;
of an endpoint what it constructs of the patterns.

Source: paper 000, section 4.3; SPARQL 1.1 Protocol; Triple Pattern Fragments.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import requests
from uritemplate import URITemplate
from uritemplate.variable import VariableValue

from annotations.clock import Clock
from annotations.instants import format_instant
from annotations.namespaces import HYDRA, RDF
from annotations.origins import origin_of
from annotations.parameters import parameter_of_term
from annotations.terms import Quad, QuadPattern, Term, is_literal, is_variable, literal_parts
from tpf_server.continuous.changing_graphs import ChangingGraphs
from tpf_server.continuous.engine.errors import RemoteGraphError
from tpf_server.continuous.engine.static.service_clauses import ServiceClause
from tpf_server.continuous.engine.static.static_data import StaticData
from tpf_server.continuous.remote_graphs import RemoteGraph


class RemoteService(RemoteGraph):
    """The graph of a SERVICE clause.

    Args:
        clause: what is asked, and where.
        session: asks.
    """

    def __init__(self, clause: ServiceClause, session: requests.Session) -> None:
        super().__init__(clause.graph, clause.endpoint[1:-1], session)
        self.clause = clause
        self._form: tuple[URITemplate, dict[str, str]] | None = None
        self._constructs = False

    @property
    def state(self) -> dict[str, Any]:
        """Which service it is, when it was asked, and whether it answered."""
        found = super().state
        del found["graph"], found["url"]
        return {"service": self._url, **found}

    @property
    def reason(self) -> str | None:
        """Why a query has not what the service says now; ``None``: it has."""
        state = self.state
        if state["state"] == "read":
            return None
        return f"SERVICE <{self._url}>: {state.get('reason', state['state'])}"

    def _failing(self) -> frozenset[Quad]:
        return frozenset([self.clause.failure]) if self.clause.silent else super()._failing()

    def _quads(self) -> Iterator[Quad]:
        if not self._url.startswith(("http://", "https://")) or origin_of(self._url) is None:
            raise RemoteGraphError(f"{self._url} is at no http(s) URL")
        if self._form is None and not self._constructs:
            self._form = self._found_form()
        if self._form is None:
            for part in self.clause.parts:
                yield from self._fragment(_constructing(self._url, part))
            self._constructs = True
            return
        template, variables = self._form
        for pattern in {each for part in self.clause.parts for each in part}:
            yield from self._fragment(_expanded(template, variables, pattern))

    def _found_form(self) -> tuple[URITemplate, dict[str, str]] | None:
        """The form of a fragment server; ``None`` where the URL is that of an endpoint."""
        try:
            quads = self._parsed(self._url)
        except RemoteGraphError:
            # An endpoint may refuse to be asked nothing; whether it is one shows when it is asked.
            return None
        said: dict[tuple[Term, str], list[Term]] = {}
        for quad in quads:
            said.setdefault((quad.subject, quad.predicate[1:-1]), []).append(quad.object)
        for (form, predicate), templates in said.items():
            if predicate != f"{HYDRA}template":
                continue
            variables = {}
            for mapping in said.get((form, f"{HYDRA}mapping"), ()):
                for place in said.get((mapping, f"{HYDRA}property"), ()):
                    for name in said.get((mapping, f"{HYDRA}variable"), ()):
                        variables[_value(place).removeprefix(RDF)] = _value(name)
            template = _value(templates[0])
            if origin_of(template) is None:
                raise RemoteGraphError(f"{self._url}: its form is at no URL: {template}")
            template = urljoin(self._url, template)
            if origin_of(template) != origin_of(self._url):
                raise RemoteGraphError(f"{self._url}: its form is of another origin: {template}")
            if {"subject", "predicate", "object"} <= variables.keys():
                try:
                    return URITemplate(template), variables
                except ValueError as error:
                    raise RemoteGraphError(f"{self._url}: its form: {error}") from error
        return None


def _value(term: Term) -> str:
    """The characters of a literal; of another term, itself."""
    return literal_parts(term).lexical if is_literal(term) else term.strip("<>")


def _expanded(template: URITemplate, variables: dict[str, str], pattern: QuadPattern) -> str:
    """The URL of the fragment of a pattern."""
    values: dict[str, VariableValue] = {
        variables[place]: parameter_of_term(term)
        for place, term in zip(("subject", "predicate", "object"), pattern[:3], strict=True)
        if not is_variable(term)
    }
    return template.expand(values)


def _constructing(url: str, part: tuple[QuadPattern, ...]) -> str:
    """The request that lets an endpoint say what it has for patterns that are joined."""
    text = " . ".join(" ".join(pattern[:3]) for pattern in part)
    query = quote(f"CONSTRUCT {{ {text} }} WHERE {{ {text} }}", safe="")
    return f"{url}{'&' if urlsplit(url).query else '?'}query={query}"


def asked_once(static: StaticData, clauses: Iterable[ServiceClause], clock: Clock) -> Iterator[str]:
    """Put into static data what services say now, and tell which do not answer, and why.

    Args:
        static: has graphs for the clauses from now on.
        clauses: what is asked.
        clock: what the time is.
    """
    with requests.Session() as session:
        for clause in dict.fromkeys(clauses):
            service = RemoteService(clause, session)
            service.read(format_instant(clock.now()))
            changing = ChangingGraphs(static, [service])
            changing.apply(changing.pending(clock.now()))
            if service.reason is not None:
                yield service.reason
