"""What SERVICE clauses ask of fragment servers and SPARQL endpoints, read again and again.

Of a fragment server the fragment of each triple pattern is read, by the form that its pages have;
of an endpoint what it constructs of the patterns.

Source: paper 000, section 4.3; SPARQL 1.1 Protocol; Triple Pattern Fragments.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

import requests

from annotations.clock import Clock
from annotations.instants import format_instant
from annotations.terms import Quad, QuadPattern, is_literal, is_variable
from tpf_server.continuous.changing_graphs import ChangingGraphs
from tpf_server.continuous.engine.errors import RemoteGraphError
from tpf_server.continuous.engine.static.service_clauses import ServiceClause
from tpf_server.continuous.engine.static.static_data import StaticData
from tpf_server.continuous.remote_graphs import RemoteGraph

_HYDRA: Final = "http://www.w3.org/ns/hydra/core#"
_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_EXPRESSION: Final = re.compile(r"\{([?&])([^{}]*)\}")
_DATATYPE: Final = re.compile(r'"\^\^<([^<>]*)>$')


class RemoteService(RemoteGraph):
    """The graph of a SERVICE clause.

    Args:
        clause: what is asked, and where.
        session: asks.
    """

    def __init__(self, clause: ServiceClause, session: requests.Session) -> None:
        super().__init__(clause.graph, clause.endpoint[1:-1], session)
        self.clause = clause
        self._form: tuple[str, dict[str, str]] | None = None
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
        if not self._url.startswith(("http://", "https://")):
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

    def _found_form(self) -> tuple[str, dict[str, str]] | None:
        """The form of a fragment server; ``None`` where the URL is that of an endpoint."""
        try:
            quads = self._parsed(self._url)
        except RemoteGraphError:
            # An endpoint may refuse to be asked nothing; whether it is one shows when it is asked.
            return None
        said: dict[tuple[Any, str], list[Any]] = {}
        for quad in quads:
            said.setdefault((quad.subject, quad.predicate.value), []).append(quad.object)
        for (form, predicate), templates in said.items():
            if predicate != f"{_HYDRA}template":
                continue
            variables = {}
            for mapping in said.get((form, f"{_HYDRA}mapping"), ()):
                for place in said.get((mapping, f"{_HYDRA}property"), ()):
                    for name in said.get((mapping, f"{_HYDRA}variable"), ()):
                        variables[place.value.removeprefix(_RDF)] = name.value
            template = urljoin(self._url, templates[0].value)
            if urlsplit(template)[:2] != urlsplit(self._url)[:2]:
                raise RemoteGraphError(f"{self._url}: its form is of another origin: {template}")
            if {"subject", "predicate", "object"} <= variables.keys():
                return template, variables
        return None


def _expanded(template: str, variables: dict[str, str], pattern: QuadPattern) -> str:
    """The URL of the fragment of a pattern."""
    values = {
        variables[place]: quote(_written(term), safe="")
        for place, term in zip(("subject", "predicate", "object"), pattern[:3], strict=True)
        if not is_variable(term)
    }

    def filled(found: re.Match[str]) -> str:
        names = [name for name in found.group(2).split(",") if name in values]
        text = "&".join(f"{name}={values[name]}" for name in names)
        return f"{found.group(1)}{text}" if text else ""

    return _EXPRESSION.sub(filled, template)


def _written(term: str) -> str:
    """A term as forms have it."""
    return _DATATYPE.sub(r'"^^\1', term) if is_literal(term) else term[1:-1]


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
