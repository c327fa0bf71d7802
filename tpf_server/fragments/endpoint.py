"""One view of a dataset at its URL, and the objects that all its fragments share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from annotations.labels import FactKey
from annotations.methods.base import Naming
from annotations.namespaces import FOAF, HYDRA, SD, SINGLETON, TEMPORAL, VOID, Vocabulary
from annotations.terms import Quad, Term
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.fragments.pattern import DEFAULT_GRAPH_IRI, PatternReader, Skolemizer
from tpf_server.fragments.view import VIEW_METHODS, View
from tpf_server.settings import PLAIN, Settings

# What only the server says: the metadata of its pages.
#
# Clients take the metadata of a page from the graph that is named after it, or from one whose
# primary topic is the page; where a format has no graphs, from the triples about page, fragment
# and dataset. Data that says such things of our own pages could lead them to another server. So it
# is refused when it is published; and whatever came in by another way (a file, a time at which the
# server had another URL) is left out of the pages.

_PRIMARY_TOPIC: Final = Term(f"<{FOAF}primaryTopic>")
_SUBSET: Final = Term(f"<{VOID}subset>")
# Labels are data: in some views a page's own URL carries the label of its fact.
_ABOUT_LABELS: Final = (
    "annotationMethod", "at", "changes", "dynamicTriples", "earliestExpiration", "evaluatedAt",
    "labelling", "mapping", "maximum", "nextChange", "plainView",
)  # fmt: skip
_OF_CONTROLS: Final = tuple(f"<{namespace}" for namespace in (HYDRA, VOID, SD))
_METADATA: Final = "#metadata>"


class _Authority:
    """Recognise quads that clients would take for metadata of a page of the dataset."""

    def __init__(self, url: str, vocabulary: Vocabulary) -> None:
        self._of_controls = (*_OF_CONTROLS, *(vocabulary[name] for name in _ABOUT_LABELS))
        self._openings = tuple(f"<{url}{end}" for end in (">", "?", "#", "/", "."))

    def controls(self, quad: Quad) -> bool:
        subject, predicate, value, _ = quad
        if predicate in (_PRIMARY_TOPIC, _SUBSET) and value.startswith(self._openings):
            return True
        return predicate.startswith(self._of_controls) and subject.startswith(self._openings)

    def makes_metadata(self, quad: Quad) -> bool:
        _, predicate, value, graph = quad
        if predicate == _PRIMARY_TOPIC and value.startswith(self._openings):
            return True
        if graph == DEFAULT_GRAPH_IRI:
            return True
        return graph.endswith(_METADATA) and graph.startswith(self._openings)

    def may_control(self, predicates: Iterable[Term]) -> bool:
        # Most pages have one predicate.
        return any(
            predicate.startswith(self._of_controls) or predicate == _PRIMARY_TOPIC
            for predicate in set(predicates)
        )

    def may_make_metadata(self, predicates: Sequence[Term], graphs: Sequence[Term]) -> bool:
        return _PRIMARY_TOPIC in predicates or (
            any(graphs)
            and any(graph.endswith((_METADATA, DEFAULT_GRAPH_IRI)) for graph in set(graphs))
        )


_PROGRAM = version("live-linked-data")
_DEFAULT_MAX_AGE_LIVE = 10.0
_DEFAULT_MAX_AGE_STATIC = 3600.0
_FORM: tuple[str, ...] = ("subject", "predicate", "object", "graph", "limit")
_ELSEWHERE: Final[dict[str, Any]] = {
    "host": "", "port": 0, "workers": 1, "data_dir": "", "publish_token_file": "",
    "access_log": False, "query_examples": "",
    "query_map_tiles": "", "query_map_attribution": "",
}  # fmt: skip
"""Settings that say where a server runs and keeps things, the same for all."""


def _digest(*parts: object) -> str:
    return blake2b(repr(parts).encode(), digest_size=12).hexdigest()


class Endpoint:
    """One view of a dataset at its URL."""

    def __init__(
        self, dataset: OpenDataset, view: str | None, settings: Settings, base: str
    ) -> None:
        own = dataset.settings
        self.dataset = dataset
        self.base = base
        self.path = own.name if view is None else f"{own.name}/{view}"
        self.url = base + self.path
        self.iri = Term(f"<{self.url}#dataset>")
        self.max_values = settings.max_values
        self.form = _FORM
        if self.max_values:
            self.form += ("values",)
        if dataset.live is not None:
            self.form += ("at", "known")
        self.changes_url = ""
        if dataset.live is not None and settings.change_followers:
            self.changes_url = f"{base}{own.name}/changes"
        self.ldes_url = ""
        if dataset.live is not None and own.event_stream is not None:
            self.ldes_url = f"{base}{own.name}/ldes"
        self.template = f"{self.url}{{?{','.join(self.form)}}}"
        self.title = (own.title or own.name) + ("" if view is None else f" ({view})")
        self.license = Term(f"<{own.license}>") if own.license else None
        self.vocabulary = Vocabulary(
            own.vocabulary or TEMPORAL, own.singleton_vocabulary or SINGLETON
        )
        self.method = VIEW_METHODS[view or own.annotation]
        self.view = View(
            dataset, self.method, Naming(f"{base}{own.name}/facts/", self.url, self.vocabulary)
        )
        self.prefixes = {
            **(dataset.static.prefixes if dataset.static is not None else {}),
            **settings.prefixes,
            **own.prefixes,
        }
        self.authority = _Authority(base + own.name, self.vocabulary)
        self.skolemizer = Skolemizer(f"{base}.well-known/genid/{own.name}/")
        self.reader = PatternReader(self.prefixes, self.skolemizer)
        self.page_size = own.page_size or settings.page_size
        self.fact_key: FactKey = "triple" if own.key == "triple" else "subject-predicate"
        self.max_page_size = max(settings.max_page_size, self.page_size)
        default = _DEFAULT_MAX_AGE_STATIC if dataset.live is None else _DEFAULT_MAX_AGE_LIVE
        self.max_age = default if own.max_age is None else own.max_age
        self.version = _digest(
            dataset.static.version if dataset.static is not None else "",
            self.url,
            # Without the tokens: who knows a tag must learn nothing about them. And without what
            # changes no page, so that machines that serve the same say the same.
            replace(settings, publish_token="", allow_streams={}, direct_pages=True, **_ELSEWHERE),
            replace(own, token="", token_file="", source="", live=dataset.live is not None),
            sorted(self.prefixes.items()),
            _PROGRAM,
        )
        self.states_labels = own.page_labels and dataset.live is not None
        self.plain_url: str | None = None
        if self.states_labels and dataset.has_plain_view:
            self.plain_url = base + own.name
            if own.annotation != PLAIN:
                self.plain_url += f"/{PLAIN}"


_Made = TypeVar("_Made")


def made_once(make: Callable[[Endpoint], _Made]) -> Callable[[Endpoint], _Made]:
    """Keep what a function makes of an endpoint for as long as that is in use."""
    kept: WeakKeyDictionary[Endpoint, _Made] = WeakKeyDictionary()

    def get(endpoint: Endpoint) -> _Made:
        made = kept.get(endpoint)
        if made is None:
            made = kept[endpoint] = make(endpoint)
        return made

    return get
