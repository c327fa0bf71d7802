"""The API documentation equals the routes and pages."""

import html
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from annotations.namespaces import HYDRA, RDF_TYPE
from annotations.terms import Quad
from tests.support.served import BASE, TMP, Served, parse
from tests.tpf_server.conftest import STATIC
from tpf_server.web.resources import RESOURCES

DOC = f"{BASE}api-doc#"
NAMES = {
    "name": "trains", "view": "plain", "kind": "graph", "digest": "0" * 32, "label": "b",
    "file": "page.json",
}  # fmt: skip
ONE_OF_THEM = {"streams": "s", "queries": "q"}

Described = Mapping[str, Mapping[str, list[str]]]


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "continuous"])
def server(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Served]:
    folder, settings = tmp_path_factory.mktemp("server"), {"continuous": request.param}
    with Served(folder, STATIC, settings=settings) as served:
        yield served


def described(rows: list[Quad]) -> Described:
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row.subject][row.predicate.strip("<>")].append(row.object)
    return found


def documentation(served: Served) -> Described:
    response = served.get("api-doc")
    return described(parse(response.content, "application/ld+json"))


def test_every_rule_is_described_with_the_methods_that_it_has(server: Served) -> None:
    document = documentation(server)
    rules = {rule.endpoint: rule for rule in server.app.url_map.iter_rules()}
    rules.pop("nothing")
    classes = document[f"<{BASE}api-doc>"][HYDRA + "supportedClass"]
    named = {
        each.strip("<>").removeprefix(DOC).lower()
        for each in classes
        if each != f"<{BASE}#EntryPoint>"
    }
    assert named | {"index"} == {name.rpartition(".")[2] for name in rules}
    server.request(
        "PUT", "streams/s", headers={"Authorization": f"Bearer {server.settings.publish_token}"}
    )
    for endpoint, rule in rules.items():
        name = endpoint.rpartition(".")[2]
        first = rule.rule.split("/")[1]
        values = NAMES | {"name": ONE_OF_THEM.get(first, "trains")}
        path = rule.rule
        for argument in rule.arguments:
            path = path.replace(f"<path:{argument}>", values[argument])
            path = path.replace(f"<{argument}>", values[argument])
        allowed = server.request("OPTIONS", path.removeprefix("/")).headers["Allow"].split(", ")
        node = f"<{BASE}#EntryPoint>" if name == "index" else f"<{DOC}{name.capitalize()}>"
        methods = {
            document[operation][HYDRA + "method"][0].strip('"')
            for operation in document[node][HYDRA + "supportedOperation"]
        }
        assert methods == set(allowed) - {"HEAD", "OPTIONS"}, endpoint


def test_the_entry_point_leads_to_every_resource(server: Served) -> None:
    document = documentation(server)
    entry = document[f"<{BASE}>"]
    for link in document[f"<{BASE}#EntryPoint>"][HYDRA + "supportedProperty"]:
        (property_,) = document[link][HYDRA + "property"]
        (target,) = entry[property_.strip("<>")]
        templates = document[target].get(HYDRA + "template")
        if templates is None:
            found = server.get(target.strip("<>").removeprefix(BASE)).status_code
            assert found == (303 if target.endswith(".well-known/void>") else 200)
        else:
            assert templates[0].startswith(f'"{BASE}')
    assert document[f"<{BASE}trains#dataset>"][DOC + "facts"] == [f"<{BASE}trains/facts>"]


def form(statements: Described, dataset: str) -> set[tuple[str, ...]]:
    """Return the content of a form, without the names of its nodes."""
    (node,) = statements[dataset][HYDRA + "search"]
    said = statements[node]
    found = {(name, *said[HYDRA + name]) for name in ("template", "variableRepresentation")}
    for via in (HYDRA + "mapping", TMP + "mapping"):
        for mapping in said[via]:
            entry = statements[mapping]
            keys = (HYDRA + "variable", HYDRA + "property", TMP + "maximum")
            found.add((via, *[value for key in keys for value in entry.get(key, ["none"])]))
    return found


def test_the_forms_are_those_of_the_pages(server: Served) -> None:
    document = documentation(server)
    collections = document[f"<{BASE}>"][HYDRA + "collection"]
    assert len(collections) == 7  # the dataset and six views
    for dataset in collections:
        url = dataset.strip("<>").removesuffix("#dataset").removeprefix(BASE)
        page = described(server.page(url).metadata)
        assert len(form(page, dataset)) >= 8
        assert form(document, dataset) == form(page, dataset)
        assert f"<{HYDRA}Collection>" in document[dataset][RDF_TYPE.strip("<>")]


def test_what_is_not_served_is_not_described(tmp_path: Path) -> None:
    with Served(tmp_path, STATIC, live=False) as served:
        text = served.get("api-doc").text
        assert "trains/facts" not in text
        assert "queries" not in text
        (collection,) = json.loads(text)["entrypoint"]["collection"]
        assert collection["@id"] == f"{BASE}trains#dataset"


def test_people_get_the_interface_as_a_page(shared: Served) -> None:
    page = shared.get("api-doc", "text/html,*/*;q=0.8")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    for resource in RESOURCES.values():
        assert f"/{html.escape(resource.template)}<" in page.text
    for accept in (None, "*/*", "application/ld+json", "text/turtle"):
        response = shared.get("api-doc", accept)
        assert response.headers["Content-Type"] == "application/ld+json"
        assert response.headers["Vary"] == "Accept"
