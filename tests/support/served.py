"""The real application with real stores and a manual clock, and an HTTP session."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyoxigraph
import requests

from annotations.clock import ManualClock
from annotations.labels import Fact, Label
from annotations.terms import Quad, Term
from tests.support.loopback import Loopback, LoopbackAdapter
from tests.support.oracle import quad_of
from tests.support.postgres import Address
from tests.support.stores import kept_store
from tpf_server.app import create_app
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.live.store import LiveStore

BASE = "http://server.test/"
TOKEN = "open sesame"
NOON = datetime(2015, 12, 8, 12, 0, 0, tzinfo=UTC)
HYDRA = "http://www.w3.org/ns/hydra/core#"
VOID = "http://rdfs.org/ns/void#"
TMP = "http://example.org/temporal#"


def term(text: str) -> Term:
    """Return a term: ``a`` is an IRI below example.org, everything else unchanged."""
    return Term(text if text[0] in '<"_' else f"<http://example.org/{text}>")


def quad(*texts: str) -> Quad:
    """Return a quad of such terms."""
    return Quad(*[term(text) for text in texts])


class Page(NamedTuple):
    """A parsed answer: data and metadata apart."""

    data: list[Quad]
    metadata: list[Quad]

    def objects(self, predicate: str, subject: str | None = None) -> list[str]:
        """Return the objects of metadata with this predicate, IRIs bare."""
        return [
            row.object.split('"')[1] if row.object[0] == '"' else row.object.strip("<>")
            for row in self.metadata
            if row.predicate == f"<{predicate}>" and subject in (None, row.subject.strip("<>"))
        ]

    @property
    def total(self) -> int:
        """The count of matches in the metadata."""
        (count,) = set(self.objects(HYDRA + "totalItems"))
        return int(count)


def parse(body: bytes, media_type: str) -> list[Quad]:
    """Return the quads of a body, by an independent parser."""
    rdf_format = pyoxigraph.RdfFormat.from_media_type(media_type.partition(";")[0])
    assert rdf_format is not None, media_type
    return [quad_of(row) for row in pyoxigraph.parse(body, format=rdf_format)]


class Served:
    """A server in this process, on a loopback port.

    Args:
        folder: of its stores.
        static: static quads of the dataset ``trains``.
        live: true if it takes live facts.
        settings: of the server.
        dataset: settings of the dataset.
        keeping: settings of the live store.
        address: of the live store; ``None``: in the folder.
        start: the first instant of its clock.
    """

    def __init__(
        self,
        folder: Path,
        static: Iterable[Quad] = (),
        *,
        live: bool = True,
        settings: dict[str, Any] | None = None,
        dataset: dict[str, Any] | None = None,
        keeping: LiveSettings | None = None,
        address: Address | None = None,
        start: datetime = NOON,
    ) -> None:
        self.clock = ManualClock(start)
        own = {"base_url": BASE, "publish_token": TOKEN}
        self.settings = Settings(**{**own, **(settings or {})})
        self.live: LiveStore | None = None
        if live:
            place = address or Address(str(folder / "live.sqlite"), "live")
            self.live = place.open(keeping)
        self.dataset = OpenDataset(
            DatasetSettings(name="trains", **(dataset or {})),
            kept_store(folder / "static", static),
            self.live,
        )
        self.app = create_app(self.settings, [self.dataset], self.clock)
        self.session = requests.Session()
        self.session.trust_env = False  # the whole environment is searched for proxies, each time
        self.requests: list[tuple[str, str]] = []
        """Method and path of every request of the session."""
        self._server = Loopback(self.app)
        self.port = self._server.port
        self.session.mount(BASE, LoopbackAdapter(self.port, self.requests))

    def close(self) -> None:
        """Close the stores."""
        self.session.close()
        self._server.close()
        self.dataset.close()

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        """Send any request."""
        prepared = self.session.prepare_request(requests.Request(method, BASE, **options))
        prepared.url = BASE + path  # exactly; requests would decode what it need not encode
        return self.session.send(prepared, allow_redirects=False)

    def get(self, path: str, accept: str | None = None, **headers: str) -> requests.Response:
        """Send a ``GET``, which may fail."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("GET", path, headers={"Accept": accept or "*/*", **named})

    def page(self, path: str, accept: str = "application/trig") -> Page:
        """Return a parsed page, which must succeed."""
        url = path.removeprefix(BASE)
        response = self.get(url, accept)
        assert response.status_code == 200, response.text
        rows = parse(response.content, response.headers["Content-Type"])
        graph = f"<{response.request.url}#metadata>"
        return Page(
            [row for row in rows if row.graph != graph], [r for r in rows if r.graph == graph]
        )

    def fragment(self, path: str) -> list[Quad]:
        """Return the data of all pages of a fragment, following ``next``."""
        found: list[Quad] = []
        url: str | None = path
        while url is not None:
            page = self.page(url)
            found += page.data
            url = next(iter(page.objects(HYDRA + "next")), None)
        return found

    def publish(self, *facts: tuple[Quad, Label]) -> None:
        """Put facts into the live store directly."""
        assert self.live is not None
        self.live.publish([Fact(row, label) for row, label in facts], self.clock.now())

    def delete(
        self,
        body: str,
        query: str = "",
        media_type: str = "application/n-quads",
        token: str | None = TOKEN,
    ) -> requests.Response:
        """Withdraw over HTTP."""
        return self.post(body, query, media_type, token, method="DELETE")

    def post(
        self,
        body: str | bytes,
        query: str = "",
        media_type: str = "application/n-quads",
        token: str | None = TOKEN,
        path: str = "trains/facts",
        method: str = "POST",
    ) -> requests.Response:
        """Publish over HTTP."""
        headers = {"Content-Type": media_type}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = body.encode() if isinstance(body, str) else body
        return self.request(
            method, f"{path}?{query}" if query else path, data=data, headers=headers
        )
