"""An endpoint: one view of a dataset at its URL, with what all its fragments have in common."""

from dataclasses import replace
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, Final

from annotations.labels import FactKey
from annotations.methods.base import Naming
from annotations.namespaces import SINGLETON, TEMPORAL, Vocabulary
from annotations.terms import Term
from tpf_server.fragments.authority import Authority
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.fragments.pattern import PatternReader
from tpf_server.fragments.skolem import Skolemizer
from tpf_server.fragments.view import VIEW_METHODS, View
from tpf_server.settings import PLAIN, Settings

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
    """One view of a dataset at its URL.

    Args:
        dataset: the dataset.
        view: name of the view at ``/{dataset}/{view}``; ``None`` for ``/{dataset}`` itself.
        settings: the server's settings.
        base: URL of the server, with a slash at its end.
    """

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
        self.authority = Authority(base + own.name, self.vocabulary)
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
            replace(settings, publish_token="", direct_pages=True, **_ELSEWHERE),
            replace(own, token="", token_file="", source=""),
            sorted(self.prefixes.items()),
            _PROGRAM,
        )
        self.states_labels = own.page_labels and dataset.live is not None
        self.plain_url: str | None = None
        if self.states_labels and dataset.has_plain_view:
            self.plain_url = base + own.name
            if own.annotation != PLAIN:
                self.plain_url += f"/{PLAIN}"
