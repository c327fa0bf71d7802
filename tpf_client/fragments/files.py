"""RDF files as datasets: pages as a server of fragments would send them, without HTTP.

Labels in a file, by any annotation method, hold as those of a server do.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote

from annotations.clock import Clock
from annotations.instants import parse_instant, shifted, utc
from annotations.labels import Fact
from annotations.methods import detect_method
from annotations.methods.base import Naming
from annotations.namespaces import Vocabulary
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    QuadPattern,
    Term,
    Variable,
    is_blank_node,
    is_triple_term,
)
from annotations.urls import term_of_parameter
from tpf_client.errors import ClientError, ParseError
from tpf_client.fragments.blank_nodes import SKOLEM_PATH, from_wire, map_parts
from tpf_client.fragments.form import PATTERN_VARIABLES, Form
from tpf_client.fragments.page import Page, PageMetadata
from tpf_client.fragments.page_reader import parse_page_body

_BASE: Final = "http://file.invalid"
_PAGE: Final = 1_000
_FRESH: Final = timedelta(hours=1)
_MOST_WARNINGS: Final = 20
_KEPT: Final = 64
_DEFAULT: Final = "urn:ldf:defaultGraph"
_ENDS: Final = {
    ".nt": "application/n-triples",
    ".nq": "application/n-quads",
    ".ttl": "text/turtle",
    ".trig": "application/trig",
    ".jsonld": "application/ld+json",
    ".rdf": "application/rdf+xml",
    ".owl": "application/rdf+xml",
}


class Files:
    """Pages of RDF files, by the URLs that stand for them."""

    def __init__(self, paths: Iterable[str], clock: Clock, vocabulary: Vocabulary) -> None:
        files = {path: Path(path).resolve() for path in paths}
        self.urls = {path: _BASE + quote(str(file)) for path, file in files.items()}
        self._clock = clock
        self._files = {
            url: _File(files[path], url, number, vocabulary)
            for number, (path, url) in enumerate(self.urls.items())
        }

    def __contains__(self, url: str) -> bool:
        return url.startswith(_BASE)

    def page(self, url: str, at: datetime | None) -> Page | None:
        """Return a page of a file as of an instant (or now); ``None``: the URL stands for none."""
        name, _, query = url.partition("?")
        file = self._files.get(name)
        if file is None:
            return None
        return file.page(url, dict(parse_qsl(query)), at or self._clock.now())


class _File:
    def __init__(self, path: Path, url: str, number: int, vocabulary: Vocabulary) -> None:
        self._number = number
        self._warnings: list[str] = []
        self._blank: dict[Term, Term] = {}
        self._url = url
        facts = self._read(path, vocabulary)
        self._static = [fact.quad for fact in facts if fact.label is None]
        self._live = [fact for fact in facts if fact.label is not None]
        self._form = Form(
            url + "{?s,p,o,g,page,at}",
            *("s", "p", "o", "g"),
            default_graph=_DEFAULT,
            page="page",
            at="at" if self._live else None,
        )
        self._index: list[dict[Term, list[Quad]]] = [{}, {}, {}]
        for quad in self._static:
            for terms, term in zip(self._index, quad, strict=False):
                terms.setdefault(term, []).append(quad)
        self._matches = lru_cache(_KEPT)(self._static_matches)

    def _read(self, path: Path, vocabulary: Vocabulary) -> list[Fact]:
        import gzip  # A browser's tab has neither this nor files.

        packed = path.suffix == ".gz"
        kind = _ENDS.get(path.with_suffix("").suffix if packed else path.suffix)
        if kind is None:
            raise ClientError(f"{path.name} is not called like a file of RDF: {', '.join(_ENDS)}")
        try:
            body = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ParseError(path.name, str(error)) from None
        try:
            quads = parse_page_body(body, kind, path.as_uri())
        except ParseError as error:
            raise ParseError(path.name, error.reason) from None
        method = None
        if vocabulary.label_predicates & {quad.predicate for quad in quads}:
            method = detect_method(quads, vocabulary)
        if method is None:
            return [Fact(self._kept(quad)) for quad in quads]
        naming = Naming(f"{_BASE}/", "", vocabulary)
        facts = method.decode(
            quads, naming, key="triple", on_error=lambda error: self._warnings.append(str(error))
        )
        return [Fact(self._kept(fact.quad), fact.label) for fact in facts]

    def _kept(self, quad: Quad) -> Quad:
        return Quad(*map(self._named, quad))

    def _named(self, term: Term) -> Term:
        """Give blank nodes names by which they can be asked for, and that no other file has."""
        if is_blank_node(term):
            if term not in self._blank:
                name = f"<{_BASE}{SKOLEM_PATH}{self._number}-{len(self._blank)}>"
                self._blank[term] = from_wire(Term(name), self._url)
            return self._blank[term]
        inside = "_:" in term and is_triple_term(term)
        return map_parts(term, self._named) if inside else term

    def page(self, url: str, parameters: Mapping[str, str], now: datetime) -> Page:
        """Return a page as it holds at the requested instant."""
        at = parameters.get("at")
        instant = parse_instant(at) if at else utc(now)
        pattern = self._pattern(parameters)
        static = self._matches(pattern)
        matching = [fact for fact in self._live if _fits(fact.quad, pattern)]
        live = [fact for fact in matching if fact.valid_at(instant)]
        ends = [fact.label.end for fact in live if fact.label]
        starts = [fact.label.start for fact in matching if fact.label and fact.label.start]
        change = min((each for each in (*ends, *starts) if each > instant), default=None)
        number = int(parameters.get("page", "1"))
        first, total = (number - 1) * _PAGE, len(static) + len(live)
        facts = [Fact(quad) for quad in static[first : first + _PAGE]]
        facts += live[max(0, first - len(static)) : max(0, first + _PAGE - len(static))]
        following = {**parameters, "page": str(number + 1)}
        metadata = PageMetadata(
            forms=(self._form,),
            count=total,
            page_size=_PAGE,
            next_page=self._link(following) if first + _PAGE < total else None,
            dynamic=len(live),
            method="plain" if self._live else None,
            earliest_expiration=min(ends, default=None),
            next_change=change,
            evaluated_at=instant if self._live else None,
        )
        return Page(
            url,
            tuple(facts),
            metadata,
            instant,
            change or shifted(instant, _FRESH),
            warnings=tuple(self._warnings[:_MOST_WARNINGS]),
        )

    def _link(self, parameters: Mapping[str, str]) -> str:
        return f"{self._url}?" + "&".join(f"{k}={quote(v, safe='')}" for k, v in parameters.items())

    def _pattern(self, parameters: Mapping[str, str]) -> QuadPattern:
        terms: list[Term | Variable] = []
        for variable in PATTERN_VARIABLES:
            text = parameters.get(variable[1:])
            if text is None:
                terms.append(variable)
            elif text == _DEFAULT:
                terms.append(DEFAULT_GRAPH)
            else:
                terms.append(from_wire(term_of_parameter(text), self._url))
        return QuadPattern(*terms)

    def _static_matches(self, pattern: QuadPattern) -> Sequence[Quad]:
        bound = [
            terms.get(Term(term), [])
            for terms, term in zip(self._index, pattern, strict=False)
            if not term.startswith("?")
        ]
        candidates = min(bound, key=len, default=self._static)
        return [quad for quad in candidates if _fits(quad, pattern)]


def _fits(quad: Quad, pattern: QuadPattern) -> bool:
    return all(
        expected == term or expected.startswith("?")
        for expected, term in zip(pattern, quad, strict=True)
    )
