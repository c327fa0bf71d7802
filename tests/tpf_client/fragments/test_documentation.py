"""Servers with forms in their documentation only."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import requests
from hydra_python_core import doc_writer as hydra

from annotations.namespaces import HYDRA, RDF
from annotations.terms import Quad, iri, literal
from tests.support.live_server import BASE, LiveServer
from tests.support.wsgi_adapter import WsgiAdapter
from tpf_client import Client, Solutions
from tpf_client.errors import OriginError, PageError, ParseError
from tpf_client.fragments import documentation
from tpf_client.fragments.documentation import documented_at, with_hydra_context

EX = "http://example.org/"
OTHER = "http://other.test/api"
QUERY = f"SELECT ?n {{ ?s <{EX}name> ?n }}"
PAGE = """<{url}> <http://www.w3.org/ns/hydra/core#totalItems> {count} .
{data}"""


def form(name: str) -> dict[str, Any]:
    """A form as the library writes it; its addresses are absolute."""
    mappings = [
        hydra.IriTemplateMapping(letter, f"{RDF}{role}")
        for letter, role in (("s", "subject"), ("p", "predicate"), ("o", "object"))
    ]
    hydra.DocUrl(OTHER, "doc", "d")
    made: dict[str, Any] = hydra.HydraIriTemplate(f"/{name}{{?s,p,o}}", mappings).generate()
    made["hydra:template"] = f"{OTHER}/{name}{{?s,p,o}}"
    return made


class Foreign:
    """A server with Turtle pages without forms, and a documentation."""

    def __init__(self, names: Iterable[str], context: object = None) -> None:
        self.first = "text/turtle", "<a:s> <a:p> <a:o> ."
        document = hydra.HydraDoc("doc", "Other", "An interface of others", "api", OTHER, "d")
        document.add_possible_status(hydra.HydraStatus(404))
        generated = document.generate()
        if context is not None:
            generated["@context"] = context
        generated["hydra:collection"] = [
            {"@id": f"{OTHER}/{name}", "search": form(name)} for name in names
        ]
        self.documentation = json.dumps(generated)
        self.link = f'</style>; rel="stylesheet", <doc>; rel="{HYDRA}apiDocumentation"'
        self.asked: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        path, query = environ["PATH_INFO"], parse_qs(environ["QUERY_STRING"])
        self.asked.append(path)
        kind, text = self.first
        if path.endswith("/doc"):
            kind, text = "application/ld+json", self.documentation
        elif query:
            data = "".join(f'<a:{n}> <{EX}name> "n{n}" .\n' for n in range(3))
            url = f"{OTHER}/{path.rpartition('/')[2]}?{environ['QUERY_STRING']}"
            kind, text = "text/turtle", PAGE.format(url=url, count=3, data=data)
        start("200 OK", [("Content-Type", kind), ("Link", self.link)])
        return [text.encode()]


def names_at(server: Foreign, url: str = f"{OTHER}/trains") -> list[str]:
    session = requests.Session()
    session.mount("http://other.test/", WsgiAdapter(server))
    with Client(url, session=session) as client:
        return answers(client)


def answers(client: Client) -> list[str]:
    found = client.query(QUERY)
    assert isinstance(found, Solutions)
    return sorted(str(row["n"]) for row in found)


@pytest.mark.parametrize(
    "context",
    [None, "http://www.w3.org/ns/hydra/context.jsonld", ["https://www.w3.org/ns/hydra/core"]],
)
def test_the_form_is_found_in_the_documentation(context: object) -> None:
    server = Foreign(["stops", "trains"], context)
    assert names_at(server) == ["n0", "n1", "n2"]
    assert server.asked.count("/api/doc") == 1


@pytest.mark.parametrize(
    "first", [("text/html", "<p>welcome"), ("application/ld+json", '{"@context": "http://x"}')]
)
def test_whatever_stands_at_the_address(first: tuple[str, str]) -> None:
    server = Foreign(["trains"])
    server.first = first
    assert names_at(server) == ["n0", "n1", "n2"]
    server.link = ""
    with pytest.raises(ParseError):
        names_at(server)


def test_the_only_form_is_meant() -> None:
    assert names_at(Foreign(["trains"]), f"{OTHER}/") == ["n0", "n1", "n2"]
    with pytest.raises(PageError, match=r"no form, and those of .*/doc are of others.*/stops"):
        names_at(Foreign(["stops", "trains"]), f"{OTHER}/")


def test_a_documentation_without_forms() -> None:
    with pytest.raises(PageError, match="doc"):
        names_at(Foreign([]))


def test_a_documentation_may_not_lead_elsewhere() -> None:
    server = Foreign(["trains"])
    server.link = server.link.replace("<doc>", "<http://evil.test/doc>")
    with pytest.raises(OriginError, match="evil"):
        names_at(server)
    server = Foreign(["trains"])
    server.documentation = server.documentation.replace(f"{OTHER}/trains", "http://evil.test/t")
    with pytest.raises(OriginError, match="evil"):
        names_at(server)


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(
        tmp_path, [Quad(iri(EX + "a"), iri(EX + "name"), literal("a"))], live=False
    ) as server:
        yield server


def test_our_own_list_of_datasets_leads_to_the_only_one(ours: LiveServer) -> None:
    session = requests.Session()
    session.mount(BASE, WsgiAdapter(ours.app))
    with Client(BASE, session=session) as client:
        assert answers(client) == ["a"]


@pytest.mark.parametrize(
    "field", ["", "x", "<a>", f"<a>; rel={HYDRA}apiDocumentatio", "<a>;rel=,;;<b", "a" * 20_000]
)
def test_other_links_are_no_documentation(field: str) -> None:
    assert documented_at({"Link": field}) is None


def test_other_contexts_are_left() -> None:
    for body in (b'{"@context": "http://x/www.w3.org"}', b"www.w3.org {", b"[" * 5000):
        assert json.loads(with_hydra_context(body)) if body[:2] == b'{"' else True
        if body[:2] != b'{"':
            assert with_hydra_context(body) == body


def test_a_large_document_is_not_made_objects_of(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"@context": "http://www.w3.org/ns/hydra/context.jsonld"}'
    assert with_hydra_context(body) != body
    monkeypatch.setattr(documentation, "_LARGEST", len(body) - 1)
    assert with_hydra_context(body) is body
