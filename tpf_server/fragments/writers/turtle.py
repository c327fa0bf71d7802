"""Write short Turtle and TriG: grouped by subject, IRIs relative, a line for each statement.

Data have one base, the server of the first subject; metadata have their page. Parts that change
have their own lines: a delta to the page before is these.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

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
from tpf_server.fragments.endpoint import Endpoint, made_once
from tpf_server.fragments.fragment import Fragment
from tpf_server.fragments.metadata import changing, controls, labels_of, metadata
from tpf_server.fragments.writers.base import (
    lines_in_graph,
    metadata_lines,
    open_data,
    quad_lines,
    triples_of_page,
)
from tpf_server.store.protocols import QuadColumns, quad_columns

_ORIGIN: Final = re.compile(r"<https?://[A-Za-z0-9.:-]++/")
_DOTS: Final = re.compile(r"/\.\.?[/?#>]")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*+")
_NAMESPACE: Final = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]*+:[^\x00-\x20<>"{}|^`\\]++""")
_LOCAL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*+")
_DIGITS: Final = re.compile(r"[+-]?[0-9]++")
_INTEGER: Final = f'"^^<{XSD_INTEGER}>'
_DATE_TIME: Final = f'"^^<{XSD_DATE_TIME}>'
_MOST_NAMES: Final = 4_096
_SPOKEN: Final = {"h": HYDRA, "v": VOID, "s": SD, "r": RDF}
_TOPIC: Final = f"<{FOAF}primaryTopic>"
_SOURCE: Final = f"<{DCTERMS}source>"
_graph = itemgetter(3)


class PredicateNames(dict[str, str]):
    """Names of predicates: ``names[predicate]``; unchanged where no prefix fits."""

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        super().__init__({RDF_TYPE: "a"})
        # Whatever a server calls its prefixes: not each name, and not each text, is one of Turtle.
        self.prefixes = {
            name: namespace
            for name, namespace in prefixes.items()
            if _NAME.fullmatch(name) and _NAMESPACE.fullmatch(namespace)
        }

    def __missing__(self, predicate: str) -> str:
        result, longest = predicate, 0
        for name, namespace in self.prefixes.items():
            if len(namespace) > longest and predicate.startswith(namespace, 1):
                local = predicate[1 + len(namespace) : -1]
                if _LOCAL.fullmatch(local):
                    result, longest = f"{name}:{local}", len(namespace)
        if len(self) < _MOST_NAMES:
            self[predicate] = result
        return result

    def declared(self, predicates: Iterable[str]) -> str:
        """Return directives with the prefixes of these predicates."""
        if not self.prefixes:
            return ""
        names = [self[each] for each in predicates]
        used = dict.fromkeys(
            [name.partition(":")[0] for name in names if name[0] != "<" and name != "a"]
        )
        return "".join([_prefix(name, self.prefixes[name]) for name in used])


def statements(
    triples: Iterable[tuple[str, str, str]], names: PredicateNames, apart: Collection[str] = ()
) -> str:
    """Return statements: a line for the neighbours that share a subject."""
    pieces: list[str] = []
    add = pieces.append
    subject = predicate = ""
    for s, p, o in triples:
        if s != subject or (p != predicate and p in apart):
            subject, predicate = s, p
            add(f" .\n{s} {names[p]} {o}")
        elif p != predicate:
            predicate = p
            add(f";{names[p]} {o}")
        else:
            add(f",{o}")
    return "".join(pieces)[3:] + " .\n" if pieces else ""


def _prefix(name: str, namespace: str) -> str:
    return f"@prefix {name}: <{namespace}> .\n"


def _lines(data: QuadColumns, names: PredicateNames) -> str:
    verbs = {predicate: f" {names[predicate]} " for predicate in set(data.predicates)}
    # Filled by column, and joined once.
    pieces = [" .\n"] * (4 * len(data.subjects))
    pieces[::4] = data.subjects
    pieces[1::4] = [verbs[predicate] for predicate in data.predicates]
    pieces[2::4] = data.objects
    return "".join(pieces)


def _relative(text: str, first: str, objects: Iterable[str]) -> str:
    match = _ORIGIN.match(first)
    if match is None:
        return text
    origin = match[0]
    # Literals, and triple terms that may hold some.
    if '"' in text:
        others = [o for o in objects if o[0] == '"' or o[1] == "<"]
        if origin in "".join(others) and [o for o in others if origin in o and '"' in o]:
            return text
    shortened = f"@base {origin}> .\n{text.replace(origin, '</')}"
    # What is short is looked for first: the other takes three times as long.
    if "<//" in shortened and f"{origin}/" in text:
        return text
    if len(shortened) > len(text) or ("/." in shortened and _DOTS.search(shortened)):
        return text
    return shortened


class CompactPages:
    """Write the pages of an endpoint."""

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
        match = _ORIGIN.match(f"<{endpoint.url}")
        near = match is not None and not _DOTS.search(f"{endpoint.url}>")
        self._origin = match[0] if match is not None and near else ""
        self._dataset = self._iri(endpoint.iri)
        self._controls = self._said(controls(endpoint).triples)

    def data(self, data: QuadColumns) -> str:
        subjects, predicates, objects, graphs = data
        if not subjects:
            return ""
        names = self._data
        if any(graphs):
            text = ""
            for graph, run in groupby(zip(*data, strict=True), key=_graph):
                lines = statements([quad[:3] for quad in run], names)
                text += f"{graph} {{\n{lines}}}\n" if graph else lines
        elif predicates[0] == predicates[-1]:
            # Matches of a predicate, in the order of their objects: seldom are subjects neighbours.
            text = _lines(data, names)
        else:
            text = statements(zip(subjects, predicates, objects, strict=True), names)
        text = _relative(text, subjects[0], objects)
        return names.declared(dict.fromkeys(predicates)) + text if names.prefixes else text

    def labels(self, triples: Sequence[Triple], graph: str = "") -> str:
        """Write the labels of a page's facts, in a graph if one is given."""
        if not triples:
            return ""
        rows = [(s, p, _literal(o) if o[0] == '"' else o) for s, p, o in triples]
        text = statements(rows, self._labels, self._apart)
        text = f"{graph} {{\n{text}}}\n" if graph else text
        subject_property = self._says_subject
        subjects = [
            o for (_, _, o), (_, q, _) in zip(rows, triples, strict=True) if q == subject_property
        ]
        # An object is said only where a fact has others. Triple terms may hold literals.
        literals = [o for _, _, o in rows if o.startswith(('"', "<<"))]
        first = next(chain(subjects, literals), "")
        return self._label_prefixes + _relative(text, first, [*subjects, *literals])

    def metadata(self, page: Fragment, *, graph: bool) -> str:
        """Write the metadata of a page, but for the labels."""
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
    # Objects of data are here, too, and any text may be said to be a number.
    if term.endswith(_INTEGER) and _DIGITS.fullmatch(term, 1, len(term) - len(_INTEGER)):
        return term[1 : -len(_INTEGER)]
    if term.endswith(_DATE_TIME):
        return f'{term[: -len(_DATE_TIME)]}"^^x:dateTime'
    return term


compact = made_once(CompactPages)
"""Return the writer of the pages of an endpoint."""


# N-Quads (RDF 1.2).

# N-Triples (RDF 1.2): without graphs, data and metadata in one.


class NTriplesWriter:
    """Write N-Triples."""

    name = "N-Triples"
    suffix = "nt"
    media_types = ("application/n-triples",)

    def write(self, fragment: Fragment) -> str:
        return triples_of_page(fragment)


# TriG (RDF 1.2): a block per run of quads of one graph, then the metadata in theirs.


class TrigWriter:
    """Write TriG."""

    name = "TriG"
    suffix = "trig"
    media_types = ("application/trig",)

    def write(self, fragment: Fragment) -> str:
        """Return the body: data in their graphs, then the metadata graph."""
        pages = compact(fragment.query.endpoint)
        graph = f"<{fragment.query.request.page_url}#metadata>"
        labels = pages.labels(labels_of(fragment), graph)
        return pages.data(fragment.rows.columns) + labels + pages.metadata(fragment, graph=True)


# Turtle (RDF 1.2): without graphs, data and metadata in one.


class TurtleWriter:
    """Write Turtle."""

    name = "Turtle"
    suffix = "ttl"
    media_types = ("text/turtle",)

    def write(self, fragment: Fragment) -> str:
        """Return the body; a triple of several graphs once."""
        data = open_data(fragment)
        if any(data.graphs):
            data = quad_columns(list(dict.fromkeys([Quad(*quad[:3]) for quad in data.quads])))
        pages = compact(fragment.query.endpoint)
        labels = pages.labels(labels_of(fragment))
        return pages.data(data) + labels + pages.metadata(fragment, graph=False)


class NQuadsWriter:
    """Write N-Quads."""

    name = "N-Quads"
    suffix = "nq"
    media_types = ("application/n-quads",)

    def write(self, fragment: Fragment) -> str:
        about = metadata(fragment)
        data = quad_lines(fragment.rows.columns)
        return data + lines_in_graph(metadata_lines(about), about.graph)
