"""SERVICE in continuous queries: endpoints and fragment servers, down and up again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import responses
from requests import Session
from typer.testing import CliRunner

from annotations.namespaces import HYDRA
from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, Variable
from tests.support.continuous_site import Site, element
from tests.support.sparql_endpoint import LoopbackEndpoint
from tests.tpf_server.web.test_nesting import grows_no_faster
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.languages.cqels.parser import parse
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.static.service_clauses import ServiceClause
from tpf_server.continuous.service import changing_graphs
from tpf_server.continuous.service.changing_graphs import RemoteService
from tpf_server.continuous.service.cli import app

DATA = '<urn:a> <urn:name> "A" ; <urn:room> <urn:r1> . <urn:r1> <urn:label> "hall" .'
INSIDE = "{ ?a <urn:name> ?n OPTIONAL { ?a <urn:room>/<urn:label> ?l } }"
AT = "2020-01-01T00:00:00Z"
XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.fixture
def endpoint() -> Iterator[LoopbackEndpoint]:
    with LoopbackEndpoint(DATA) as found:
        yield found


def texts(url: str, silent: str = "") -> dict[str, str]:
    service = f"SERVICE {silent} <{url}> {INSIDE}"
    return {
        "cqels": f"SELECT ?a ?n ?l {{ STREAM <s> [NOW] {{ ?a <urn:p> ?b }} {service} }}",
        "csparql": "REGISTER QUERY csparql AS SELECT ?a ?n ?l"
        f" FROM STREAM <s> [RANGE 10ms STEP 10ms] {{ ?a <urn:p> ?b {service} }}",
        "rspql": "REGISTER RSTREAM <out> AS SELECT ?a ?n ?l FROM NAMED WINDOW <w> ON <s>"
        f" [RANGE PT0.01S STEP PT0.01S] WHERE {{ WINDOW <w> {{ ?a <urn:p> ?b }} {service} }}",
    }


def register(site: Site, name: str, text: str) -> requests.Response:
    return site.register(text, **({"name": name} if name != "csparql" else {}))


def answers(site: Site, name: str) -> list[list[dict[str, str]]]:
    relation = "added" if name == "cqels" else "result"
    return [each[relation] for each in site.emissions(name)]


@pytest.mark.parametrize("silent", ["", "SILENT"])
def test_an_endpoint_is_down_and_recovers(endpoint: LoopbackEndpoint, silent: str) -> None:
    site = Site(policies={"time": "elements", "services": (endpoint.url,)})
    endpoint.works = False
    for name, text in texts(endpoint.url, silent).items():
        assert register(site, name, text).status_code == 201
    other = site.register("SELECT ?a { STREAM <s> [NOW] { ?a <urn:p> ?b } }", name="other")
    assert other.status_code == 201
    for name in ("cqels", "csparql", "rspql"):
        found = site.get(f"queries/{name}")
        assert found["state"] == "degraded"
        assert f"SERVICE <{endpoint.url}>: " in str(found["reason"])
        assert "HTTP 503" in str(found["reason"])
    assert site.get("queries/other")["state"] == "running"
    site.push(element(1), element(11))
    empty = [{"a": "<urn:a>"}]
    assert answers(site, "cqels") == ([empty] * 2 if silent else [])
    assert answers(site, "csparql")[-1] == (empty if silent else [])
    endpoint.works = True
    site.service._remote.read()
    site.push(element(21), element(31))
    there = [{"a": "<urn:a>", "n": '"A"', "l": '"hall"'}]
    assert answers(site, "cqels")[-2:] == [there] * 2
    assert answers(site, "csparql")[-1] == there
    for name in ("cqels", "csparql", "rspql"):
        found = site.get(f"queries/{name}")
        assert found["state"] == "running"
        assert isinstance(found["services"], list)
        said = [(each["service"], each["state"]) for each in found["services"]]
        assert said == [(endpoint.url, "read")]
    endpoint.store.update('DELETE DATA { <urn:r1> <urn:label> "hall" }')
    site.service._remote.read()
    site.push(element(41))
    assert answers(site, "cqels")[-1] == [{"a": "<urn:a>", "n": '"A"'}]
    asked = len(endpoint.asked)
    endpoint.works = False
    site.service._remote.read()
    site.push(element(51))
    last = [{"a": "<urn:a>"}] if silent else [{"a": "<urn:a>", "n": '"A"'}]
    assert answers(site, "cqels")[-1] == last
    for name in ("cqels", "csparql", "rspql"):
        site.delete(f"queries/{name}")
    endpoint.works = True
    site.service._remote.read()
    assert len(endpoint.asked) == asked
    assert site.service._engine.static._graphs.keys() <= {DEFAULT_GRAPH}


def test_equal_clauses_are_asked_once(endpoint: LoopbackEndpoint) -> None:
    site = Site(policies={"services": (endpoint.url,)})
    for name, text in texts(endpoint.url).items():
        register(site, name, text)
    assert len(endpoint.asked) == 2  # one for each group of patterns


def test_what_cannot_be_asked(endpoint: LoopbackEndpoint) -> None:
    site = Site(policies={"services": (endpoint.url,)})
    stream = "STREAM <s> [NOW] { ?a <urn:p> ?b }"
    inside = f"SERVICE <{endpoint.url}> {{ GRAPH ?g {{ ?a ?c ?d }} }}"
    variable = "SERVICE ?b: what is asked again and again is named by an IRI"
    for service, reason in (
        ("SERVICE ?b { ?a ?c ?d }", f"line 1, column 55: {variable}"),
        (inside, f"GRAPH, STREAM or SERVICE inside SERVICE <{endpoint.url}>"),
    ):
        refused = site.register(f"SELECT * {{ {stream} {service} }}")
        assert (refused.status_code, refused.json()["detail"]) == (422, reason)
    with pytest.raises(UnsupportedContinuousQueryError, match="cannot be asked from here"):
        Engine().register(texts(endpoint.url)["cqels"])


@pytest.mark.parametrize("language", ["cqels", "csparql", "rspql"])
def test_a_server_asks_only_where_its_settings_allow_it(
    endpoint: LoopbackEndpoint, language: str
) -> None:
    site = Site(policies={"services": (endpoint.url, "http://other.test")})
    origin = endpoint.url.removesuffix(urlsplit(endpoint.url).path)
    for url in (
        "urn:x",
        "http://[x",
        "http://elsewhere.test/",
        f"{origin}1/sparql",
        "http://other.test:80/",
    ):
        refused = site.register(texts(url)[language])
        reason = f"SERVICE <{url}>: its server is not in the setting allow_service"
        assert (refused.status_code, refused.json()["detail"]) == (422, reason)
    assert site.register(texts(f"{origin}/another/path")[language]).status_code == 201
    assert len(endpoint.asked) > 0


def test_other_queries_do_not_see_what_services_say(endpoint: LoopbackEndpoint) -> None:
    site = Site(policies={"services": (endpoint.url,)})
    site.register(texts(endpoint.url)["cqels"], name="cqels")
    site.register(
        "SELECT ?g { STREAM <s> [NOW] { ?a <urn:p> ?b } GRAPH ?g { ?a ?c ?d } }", name="g"
    )
    site.push(element(1))
    assert len(answers(site, "cqels")) == 1
    assert site.results("g", params={"follow": "false"}).text == ""


def test_from_the_command_line(endpoint: LoopbackEndpoint, tmp_path: Path) -> None:
    stream = tmp_path / "s.tsv"
    stream.write_text("1\t<urn:a>\t<urn:p>\t<urn:b>\n11\t<urn:a>\t<urn:p>\t<urn:b>\n")
    for works in (True, False):
        endpoint.works = works
        for text in texts(endpoint.url).values():
            arguments = ["run", text, "--stream", f"http://localhost/s={stream}"]
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0
            assert ('"hall"' in done.stdout) == works
            assert (f"SERVICE <{endpoint.url}>: " in done.stderr) == (not works)


FORM = """<urn:s> <urn:p> "1" .
<#meta> { <#set> <http://www.w3.org/ns/hydra/core#search> _:form .
 _:form <http://www.w3.org/ns/hydra/core#template> "TEMPLATE" ;
  <http://www.w3.org/ns/hydra/core#mapping> _:s, _:p, _:o .
 _:s <http://www.w3.org/ns/hydra/core#variable> "s" ; <http://www.w3.org/ns/hydra/core#property> <R#subject> .
 _:p <http://www.w3.org/ns/hydra/core#variable> "p" ; <http://www.w3.org/ns/hydra/core#property> <R#predicate> .
 _:o <http://www.w3.org/ns/hydra/core#variable> "o" ; <http://www.w3.org/ns/hydra/core#property> <R#object> . }
""".replace("<R#", "<http://www.w3.org/1999/02/22-rdf-syntax-ns#")  # noqa: E501


FAR = "http://far.test/data"
ANY = QuadPattern(Variable("?s"), Variable("?p"), Variable("?o"))


def asked_of_a_form(template: str, pattern: QuadPattern) -> RemoteService:
    """A service with this form, asked for a pattern."""
    form, every = FORM.replace("TEMPLATE", template), responses.matchers.query_param_matcher({})
    responses.get(FAR, form, content_type="application/trig", match=[every])
    service = RemoteService(ServiceClause(Term(f"<{FAR}>"), ((pattern,),), False), Session())
    service.read(AT)
    return service


@responses.activate
@pytest.mark.parametrize(
    ("term", "asked"),
    [
        (f'"1"^^<{XSD}integer>', f'"1"^^{XSD}integer'),
        (r'"a\"b"', '"a"b"'),
        (r'"a\\b\nc"@en', '"a\\b\nc"@en'),
        (r'"\""^^<urn:t>', '"""^^urn:t'),
        ("<<( <urn:a> <urn:b> <urn:c> )>>", "<<( <urn:a> <urn:b> <urn:c> )>>"),
    ],
)
@pytest.mark.parametrize(
    ("template", "path", "names"),
    [("{?s,p,o}", "", "spo"), ("/of{/s}{?p}{&o}", "/of/urn%3As", "po"), ("{?o,s}", "", "so")],
)
def test_fragments_are_read_by_their_form(
    term: str, asked: str, template: str, path: str, names: str
) -> None:
    there = {"s": "urn:s", "p": "urn:p", "o": asked}
    matches = [responses.matchers.query_param_matcher({name: there[name] for name in names})]
    body = f"<urn:s> <urn:p> {term} ."
    responses.get(FAR + path, body, content_type="application/n-triples", match=matches)
    pattern = QuadPattern(Term("<urn:s>"), Term("<urn:p>"), Term(term))
    service = asked_of_a_form(FAR + template, pattern)
    assert service.reason is None
    assert [quad[:3] for quad in service.changes(0)] == [pattern[:3]]


@responses.activate
@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("http://evil.test/{?s,p,o}", "its form is of another origin: http://evil.test/"),
        ("http://[x{?s,p,o}", "its form is at no URL: http://[x"),
        (f"{FAR}{{?s:few,p,o}}", "its form: "),
    ],
)
def test_forms_that_cannot_be_used(template: str, reason: str) -> None:
    assert reason in str(asked_of_a_form(template, ANY).reason)


def test_a_service_that_is_at_no_url() -> None:
    service = RemoteService(ServiceClause(Term("<http://[x>"), ((ANY,),), False), Session())
    service.read(AT)
    assert "http://[x is at no http(s) URL" in str(service.reason)


@pytest.mark.parametrize("patterns", [1, 2])
def test_a_service_has_one_bound_for_all_its_patterns(
    monkeypatch: pytest.MonkeyPatch, patterns: int
) -> None:
    monkeypatch.setattr(changing_graphs, "_TRIPLES", 3)
    page = [Quad(Term("<urn:s>"), Term("<urn:p>"), Term(f'"{n}"')) for n in range(2)]
    clause = ServiceClause(Term(f"<{FAR}>"), ((ANY,),) * patterns, False)
    service = RemoteService(clause, Session())
    monkeypatch.setattr(service, "_form_of_server", lambda: None)
    monkeypatch.setattr(service, "_page", lambda _url: (page, None))
    for _ in range(2):
        service.read(AT)
        assert ("more than 3 triples" in str(service.reason)) == (patterns > 1)


def test_a_clause_is_known_by_what_it_asks() -> None:
    one, other = (
        parse(f"SELECT * {{ STREAM <s> [NOW] {{ ?{x} <urn:p> ?b }} SERVICE <u> {{ ?{x} ?y ?z }} }}")
        for x in "ac"
    )
    assert one.services == other.services


def test_a_form_costs_no_more_than_its_page_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def reading(size: int) -> Callable[[], object]:
        numbers = range(size)
        said = [("f", "template", f"{FAR}{{?s}}"), ("f", "mapping", "<urn:m>")]
        said += [("m", "property", f"p{n}") for n in numbers]
        said += [("m", "variable", f"v{n}") for n in numbers]
        quads = [
            Quad(Term(f"<urn:{s}>"), Term(f"<{HYDRA}{p}>"), Term(o if o[0] == "<" else f'"{o}"'))
            for s, p, o in said
        ]
        service = RemoteService(ServiceClause(Term(f"<{FAR}>"), ((ANY,),), False), Session())
        monkeypatch.setattr(service, "_parsed", lambda _url: quads)
        return service._form_of_server

    grows_no_faster(reading, 100)
