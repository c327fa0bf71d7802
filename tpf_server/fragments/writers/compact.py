"""Turtle and TriG without repetition: grouped by subject, IRIs relative, a line for each statement.

A page is put together from the texts of its terms, without looking at each: what follows from the
whole text is done to the whole text. Data have one base, the server of the first subject; metadata
have their page as theirs. An IRI on the base's server becomes ``</path>``, which means that IRI
again where its path has no empty segment at its front and none that is made of dots, and where no
literal holds the beginning of such an IRI. Where anything looks like that, IRIs stay as they are.

Each line is whole (a directive, a statement, the beginning or end of a graph), and what changes
from answer to answer has lines of its own: who reads a page again parses only these.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Final
from weakref import WeakKeyDictionary

from annotations.namespaces import (
    DCTERMS,
    FOAF,
    HYDRA,
    RDF,
    RDF_TYPE,
    SD,
    VOID,
    XSD,
    XSD_DATE_TIME,
    XSD_INTEGER,
)
from annotations.terms import Quad, Triple
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import changing, controls

_ORIGIN: Final = re.compile(r"<https?://[A-Za-z0-9.:-]++/")
_DOTS: Final = re.compile(r"/\.\.?[/?#>]")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*+")
_NAMESPACE: Final = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]*+:[^\x00-\x20<>"{}|^`\\]++""")
_LOCAL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*+")
_INTEGER: Final = f'"^^<{XSD_INTEGER}>'
_DATE_TIME: Final = f'"^^<{XSD_DATE_TIME}>'
_MOST_NAMES: Final = 4_096
_SPOKEN: Final = {"h": HYDRA, "v": VOID, "s": SD, "r": RDF}
_TOPIC: Final = f"<{FOAF}primaryTopic>"
_SOURCE: Final = f"<{DCTERMS}source>"
_graph = itemgetter(3)


class PredicateNames(dict[str, str]):
    """What predicates are called: ``names[predicate]``; as they are where no prefix fits.

    Args:
        prefixes: names of namespaces.
    """

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        super().__init__({RDF_TYPE: "a"})
        # Whatever a server calls its prefixes: not each name, and not each text, is one of Turtle.
        self.prefixes = {
            name: namespace
            for name, namespace in prefixes.items()
            if _NAME.fullmatch(name) and _NAMESPACE.fullmatch(namespace)
        }

    def __missing__(self, predicate: str) -> str:
        found, longest = predicate, 0
        for name, namespace in self.prefixes.items():
            if len(namespace) > longest and predicate.startswith(namespace, 1):
                local = predicate[1 + len(namespace) : -1]
                if _LOCAL.fullmatch(local):
                    found, longest = f"{name}:{local}", len(namespace)
        if len(self) < _MOST_NAMES:
            self[predicate] = found
        return found

    def declared(self, predicates: Iterable[str]) -> str:
        """Directives with the prefixes of these predicates."""
        if not self.prefixes:
            return ""
        names = [self[each] for each in predicates]
        used = dict.fromkeys(
            [name.partition(":")[0] for name in names if name[0] != "<" and name != "a"]
        )
        return "".join([_prefix(name, self.prefixes[name]) for name in used])


def statements(
    triples: Iterable[Sequence[str]], names: PredicateNames, apart: Collection[str] = ()
) -> str:
    """Statements: a line for the neighbours that share a subject.

    Args:
        triples: subject, predicate, object; what follows them does not count.
        names: what predicates are called.
        apart: predicates that begin a line of their own.
    """
    pieces: list[str] = []
    add = pieces.append
    subject = predicate = ""
    for triple in triples:
        if triple[0] != subject or (triple[1] != predicate and triple[1] in apart):
            subject, predicate = triple[0], triple[1]
            add(f" .\n{subject} {names[predicate]} {triple[2]}")
        elif triple[1] != predicate:
            predicate = triple[1]
            add(f";{names[predicate]} {triple[2]}")
        else:
            add(f",{triple[2]}")
    return "".join(pieces)[3:] + " .\n" if pieces else ""


def _prefix(name: str, namespace: str) -> str:
    return f"@prefix {name}: <{namespace}> .\n"


def _relative(text: str, triples: Sequence[Sequence[str]]) -> str:
    """A text of statements with its base, or as it is."""
    found = _ORIGIN.match(triples[0][0]) if triples else None
    if found is None:
        return text
    origin = found[0]
    # Literals, and triple terms that may hold some.
    if '"' in text and [
        t for t in triples if (t[2][0] == '"' or t[2][1] == "<") and origin in t[2] and '"' in t[2]
    ]:
        return text
    if f"{origin}/" in text:
        return text
    shortened = f"@base {origin}> .\n{text.replace(origin, '</')}"
    if len(shortened) > len(text) or ("/." in shortened and _DOTS.search(shortened)):
        return text
    return shortened


class CompactPages:
    """Writes the pages of an endpoint.

    Args:
        endpoint: the endpoint.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        tmp = endpoint.vocabulary
        self._says_subject = tmp["subject"]
        self._apart = frozenset(
            {tmp["dynamicTriples"], tmp["earliestExpiration"], tmp["evaluatedAt"], tmp["predicate"]}
        )
        self._data = PredicateNames(endpoint.prefixes)
        self._labels = PredicateNames({"t": tmp.temporal})
        self._label_prefixes = _prefix("t", tmp.temporal) + _prefix("x", XSD)
        self._names = PredicateNames({**_SPOKEN, "t": tmp.temporal, "x": XSD})
        # Only pages of facts that change have an instant.
        spoken = [*_SPOKEN, "t", *("x" if endpoint.dataset.live is not None else "")]
        self._prefixes = "".join([_prefix(name, self._names.prefixes[name]) for name in spoken])
        found = _ORIGIN.match(f"<{endpoint.url}")
        near = found is not None and not _DOTS.search(f"{endpoint.url}>")
        self._origin = found[0] if found is not None and near else ""
        self._dataset = self._iri(endpoint.iri)
        self._controls = self._said(controls(endpoint).triples)

    def data(self, quads: Sequence[Quad]) -> str:
        """Quads, graph by graph."""
        if not quads:
            return ""
        names = self._data
        if any(map(_graph, quads)):
            text = ""
            for graph, run in groupby(quads, key=_graph):
                lines = statements(run, names)
                text += f"{graph} {{\n{lines}}}\n" if graph else lines
        elif quads[0][1] == quads[-1][1]:
            # Matches of a predicate, in the order of their objects: seldom are subjects neighbours.
            text = "".join([f"{s} {names[p]} {o} .\n" for s, p, o, _ in quads])
        else:
            text = statements(quads, names)
        text = _relative(text, quads)
        return names.declared({quad[1] for quad in quads}) + text if names.prefixes else text

    def labels(self, triples: Sequence[Triple], graph: str = "") -> str:
        """The labels of a page's facts, in a graph if one is given."""
        if not triples:
            return ""
        rows = [(s, p, _literal(o) if o[0] == '"' else o) for s, p, o in triples]
        text = statements(rows, self._labels, self._apart)
        text = f"{graph} {{\n{text}}}\n" if graph else text
        said = self._says_subject
        facts = [(o, p, o) for (_, p, o), (_, q, _) in zip(rows, triples, strict=True) if q == said]
        # An object is said only where a fact has others.
        facts += [row for row in rows if row[2][0] == '"']
        return self._label_prefixes + _relative(text, facts)

    def metadata(self, page: Fragment, *, graph: bool) -> str:
        """What a page says of itself, but for the labels; see `metadata`.

        Args:
            page: the page.
            graph: whether it is said in a graph of its own.
        """
        request, total = page.query.request, page.total
        url, fragment_url = request.page_url, request.fragment_url
        origin = self._origin
        if origin:
            # What comes after the path is never taken for a part of it.
            base, here, name = f"@base <{url}> .\n", "<>", "<#metadata>"
            whole = here if fragment_url == url else f"</{fragment_url[len(origin) - 1 :]}>"
            first = len(origin) - 1
            links = [f"h:{each} </{to[first:]}>" for each, to in page.links.items()]
        else:
            base, here, name = "", f"<{url}>", f"<{url}#metadata>"
            whole = f"<{fragment_url}>"
            links = [f"h:{each} <{to}>" for each, to in page.links.items()]
        size = f"v:triples {total};h:totalItems {total}"
        part = f"a h:PartialCollectionView;h:itemsPerPage {request.limit}"
        if whole == here:
            part = f";{part}"
        else:
            part = f" .\n{self._dataset} v:subset {whole} .\n{here} {size};{part}"
        temporal = changing(page)
        text = (
            f"{name} {_TOPIC} {whole} .\n{self._dataset} v:subset {here} .\n{self._controls}"
            f"{whole} v:subset {here};a h:Collection;{_SOURCE} {self._dataset};{size};"
            f"h:view {here}{part} .\n{here} {';'.join(links)} .\n"
            f"{self._said(temporal, fragment_url, whole) if temporal else ''}"
        )
        text = f"{name} {{\n{text}}}\n" if graph else text
        return f"{self._prefixes}{base}{text}"

    def _said(self, triples: Iterable[Triple], fragment_url: str = "", whole: str = "") -> str:
        special = {f"<{fragment_url}>": whole}
        rows = [
            (
                special.get(s) or self._iri(s),
                p,
                _literal(o) if o[0] == '"' else special.get(o) or self._iri(o),
            )
            for s, p, o in triples
        ]
        return statements(rows, self._names, self._apart)

    def _iri(self, term: str) -> str:
        origin = self._origin
        if origin and term.startswith(origin) and not term.startswith("/", len(origin)):
            return f"</{term[len(origin) :]}"
        return self._names[term]


@lru_cache(maxsize=4_096)
def _literal(term: str) -> str:
    """A number or an instant, shorter; other literals as they are."""
    if term.endswith(_INTEGER):
        return term[1 : -len(_INTEGER)]
    if term.endswith(_DATE_TIME):
        return f'{term[: -len(_DATE_TIME)]}"^^x:dateTime'
    return term


_pages: WeakKeyDictionary[Endpoint, CompactPages] = WeakKeyDictionary()


def compact(endpoint: Endpoint) -> CompactPages:
    """What writes the pages of an endpoint."""
    found = _pages.get(endpoint)
    if found is None:
        found = _pages[endpoint] = CompactPages(endpoint)
    return found
