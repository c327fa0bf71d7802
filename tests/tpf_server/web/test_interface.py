"""Each statement of the design about the fragment interface, over HTTP."""

import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from markupsafe import escape

from annotations.labels import Expiration, Interval, Label
from annotations.terms import Quad, Term
from tests.support.served import BASE, HYDRA, NOON, TMP, VOID, Served, parse, quad
from tests.tpf_server.conftest import STATIC

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
SOON = Expiration(NOON + timedelta(seconds=8, milliseconds=400))


def shown(row: Quad) -> Quad:
    """Return a static quad as pages show it: blank nodes have labels of the store."""
    return Quad(*[Term(re.sub(r"<[^>]*genid/trains/[^>]*>", "_:b", term)) for term in row])


def test_get_head_and_options(shared: Served) -> None:
    get = shared.get("trains")
    head = shared.request("HEAD", "trains")
    assert (get.status_code, head.status_code) == (200, 200)
    for name in ("ETag", "Content-Type", "Cache-Control", "Expires", "Last-Modified", "Vary"):
        assert head.headers[name] == get.headers[name]
    assert head.content == b""
    options = shared.request("OPTIONS", "trains")
    assert options.status_code == 204
    assert options.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_a_text_without_quotation_marks_is_400_and_told_how(shared: Served) -> None:
    for text in ("Ghent", "IC 1", "42"):
        response = shared.get(f"trains?object={quote(text)}", "text/html")
        assert response.status_code == 400
        assert escape(f'a text has quotation marks: "{text}"') in response.text


def test_blank_nodes_are_skolemised_and_understood(shared: Served) -> None:
    (row,) = shared.page(
        "trains?predicate=http://example.org/knows&object=http://example.org/t1"
    ).data
    assert re.fullmatch(rf"<{BASE}\.well-known/genid/trains/[^<>]+>", row.subject)
    for text in (row.subject, row.subject[1:-1]):
        assert shared.page("trains?subject=" + quote(text, safe="")).data == [row]


def test_metadata_name_fragment_dataset_and_page(shared: Served) -> None:
    page = shared.page("trains?predicate=http://example.org/name&page=1")
    fragment = BASE + "trains?predicate=http://example.org/name"
    url = fragment + "&page=1"
    assert page.objects("http://xmlns.com/foaf/0.1/primaryTopic", url + "#metadata") == [fragment]
    assert page.objects(HYDRA + "view", fragment) == [url]
    assert HYDRA + "PartialCollectionView" in page.objects(RDF + "type", url)
    assert page.objects(HYDRA + "itemsPerPage", url) == ["3"]
    for subject in (fragment, url):
        assert page.objects(VOID + "triples", subject) == ["2"]
        assert page.objects(HYDRA + "totalItems", subject) == ["2"]


@pytest.mark.parametrize("path", ["trains", "trains?page=1", "trains?subject=&page=2"])
def test_the_last_subset_of_the_page_is_the_fragment(shared: Served, path: str) -> None:
    page = shared.page(path)
    url = BASE + path
    subjects = [
        row.subject.strip("<>")
        for row in page.metadata
        if row.predicate == f"<{VOID}subset>" and row.object == f"<{url}>"
    ]
    fragment = re.sub(r"[?&]page=\d+", "", url)
    assert subjects == [BASE + "trains#dataset", fragment]


def test_the_form_has_one_template_with_four_mappings(shared: Served) -> None:
    page = shared.page("trains")
    assert len(page.objects(HYDRA + "template")) == 1
    assert page.objects(HYDRA + "template")[0].startswith(
        BASE + "trains{?subject,predicate,object,graph"
    )
    assert len(page.objects(HYDRA + "search", BASE + "trains#dataset")) == 1
    assert len(page.objects(HYDRA + "mapping")) == 4
    properties = page.objects(HYDRA + "property")
    assert {RDF + "subject", RDF + "predicate", RDF + "object"} <= set(properties)
    assert "http://www.w3.org/ns/sparql-service-description#graph" in properties


def test_the_page_subject_echoes_the_url_byte_for_byte(shared: Served) -> None:
    for query in (
        "predicate=http%3a%2F%2Fexample.org%2fstop&page=1",
        "predicate=http://example.org/stop&page=1&unknown=%41",
        "predicate=%3Chttp://example.org/stop%3E",
    ):
        response = shared.get(f"trains?{query}", "application/n-quads")
        assert f"<{BASE}trains?{query}#metadata> .\n" in response.text


def test_page_edges(shared: Served) -> None:
    first, last = shared.page("trains"), shared.page("trains?page=3")
    assert [len(first.data), len(last.data)] == [3, 2]
    assert first.objects(HYDRA + "next") == [BASE + "trains?page=2"]
    assert first.objects(HYDRA + "previous") == []
    assert first.objects(HYDRA + "first") == [BASE + "trains?page=1"]
    assert first.objects(HYDRA + "last") == [BASE + "trains?page=3"]
    assert last.objects(HYDRA + "next") == []
    assert last.objects(HYDRA + "previous") == [BASE + "trains?page=2"]
    everything = [shown(row) for row in shared.fragment("trains")]
    assert sorted(everything) == sorted(STATIC)
    for path, size, total, previous in (
        ("trains?predicate=http://example.org/stop", 3, 3, []),
        ("trains?subject=http://example.org/nobody", 0, 0, []),
        ("trains?page=9", 0, 8, [BASE + "trains?page=3"]),
    ):
        page = shared.page(path)
        assert (len(page.data), page.total) == (size, total)
        assert page.objects(HYDRA + "next") == []
        assert page.objects(HYDRA + "previous") == previous


def test_a_larger_page_by_limit_up_to_the_servers(tmp_path: Path) -> None:
    rows = [quad(f"s{number}", "p", "o") for number in range(30)]
    sizes = {"page_size": 3, "max_page_size": 20}
    with Served(tmp_path, rows, settings=sizes) as served:
        for limit, size in ((1, 1), (7, 7), (20, 20), (21, 20), (10**9, 20)):
            page = served.page(f"trains?limit={limit}")
            assert (len(page.data), page.objects(HYDRA + "itemsPerPage")) == (size, [str(size)])
            assert page.objects(HYDRA + "next") == [f"{BASE}trains?limit={size}&page=2"]
            assert page.total == 30
        assert served.page("trains").objects(TMP + "maximum") == ["20", "64"]
        for nonsense in ("0", "-1", "x", "", "1e3"):
            assert served.get(f"trains?limit={nonsense}").status_code == 400


def test_qpf_default_graph(shared: Served) -> None:
    page = shared.page("trains")
    default = page.objects("http://www.w3.org/ns/sparql-service-description#defaultGraph")
    assert default == ["urn:ldf:defaultGraph"]


JSON_LD = "http://www.w3.org/ns/json-ld"


def test_negotiation_honours_q_values_and_says_vary(shared: Served) -> None:
    cases = {
        "*/*": "application/trig",
        "text/turtle;q=0.5, application/n-quads;q=0.8": "application/n-quads",
        "application/trig;q=0, text/turtle": "text/turtle",
        "text/html,application/xhtml+xml,*/*;q=0.8": "text/html",
        "application/json": "application/json",
        "text/turtle; charset=utf-8": "text/turtle",
        "application/n-triples;version=1.2;q=0.9, text/html;charset=utf-8;q=0.1":
            "application/n-triples",
        f'application/ld+json;profile="{JSON_LD}#compacted", text/html;q=0.1':
            "application/ld+json",
    }  # fmt: skip
    for accept, kind in cases.items():
        response = shared.get("trains", accept)
        assert response.headers["Content-Type"].partition(";")[0] == kind, accept
        assert "Accept" in response.headers["Vary"]
        # What a page says of itself gets it again.
        again = shared.get("trains", response.headers["Content-Type"])
        assert again.headers["Content-Type"] == response.headers["Content-Type"]


@pytest.mark.parametrize("accept", ["image/png", "text/turtle;q=0", "nonsense"])
def test_406_where_nothing_fits(shared: Served, accept: str) -> None:
    assert shared.get("trains", accept).status_code == 406


def test_headers_are_read_up_to_a_length(shared: Served) -> None:
    """Parsed headers are cached."""
    long = "text/html," * 400
    assert shared.get("trains", long).headers["Content-Type"].startswith("text/html")
    for path in ("trains", ""):
        response = shared.get(path, long * 2)
        assert response.status_code == 400
        assert response.json()["detail"] == "Accept has more than 4096 characters"
    response = shared.get("trains", Accept_Encoding="gzip," * 1000)
    assert "Content-Encoding" not in response.headers


def test_freshness_ends_when_a_label_ends_or_starts_within_the_max_age(served: Served) -> None:
    fragment = "trains?predicate=http://example.org/"
    later = Interval(NOON + timedelta(seconds=4), NOON + timedelta(seconds=9))
    day = Expiration(NOON + timedelta(days=1))
    labels: dict[str, tuple[Label, int]] = {
        "delay": (SOON, 8), "track": (later, 4), "seats": (day, 10)
    }  # fmt: skip
    for name, (label, seconds) in labels.items():
        served.publish((quad("t1", name, '"5"'), label))
        response = served.get(fragment + name)
        assert response.headers["Cache-Control"] == f"public, max-age={seconds}"
        assert response.headers["Date"] == "Tue, 08 Dec 2015 12:00:00 GMT"
        assert response.headers["Expires"] == f"Tue, 08 Dec 2015 12:00:{seconds:02} GMT"
    page = served.page(fragment + "delay")
    assert page.objects(TMP + "earliestExpiration") == ["2015-12-08T12:00:08.400000Z"]


def test_a_strong_etag_makes_304(served: Served) -> None:
    served.publish((quad("t1", "delay", '"5"'), SOON))
    tag = served.get("trains").headers["ETag"]
    assert re.fullmatch(r'"[^"]+"', tag)
    again = served.get("trains", If_None_Match=tag)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["ETag"] == tag
    assert again.headers["Cache-Control"] == "public, max-age=8"
    served.clock.advance_to(NOON + timedelta(seconds=5))
    assert served.get("trains", If_None_Match=f'"x", {tag}').status_code == 304
    assert served.get("trains", "text/turtle", If_None_Match=tag).status_code == 200


def test_last_modified_makes_304_for_static_data_only(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Served(tmp_path_factory.mktemp("s"), STATIC, live=False) as served:
        date = served.get("trains").headers["Last-Modified"]
        assert served.get("trains", If_Modified_Since=date).status_code == 304
    with Served(tmp_path_factory.mktemp("l"), STATIC) as served:
        served.publish((quad("t1", "delay", '"5"'), SOON))
        date = served.get("trains").headers["Last-Modified"]
        # The date of the last batch cannot tell that a label has ended since.
        assert served.get("trains", If_Modified_Since=date).status_code == 200


def test_head_does_not_evaluate_the_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.publish((quad("t1", "delay", '"5"'), SOON))
    static = served.dataset.static
    assert static is not None
    assert served.live is not None
    for store in (static, served.live):
        for name in ("count", "quads", "facts"):
            if hasattr(store, name):
                monkeypatch.setattr(type(store), name, lambda *_: pytest.fail("evaluated"))
    assert served.request("HEAD", "trains").status_code == 200
    tag = served.request("HEAD", "trains").headers["ETag"]
    assert served.get("trains", If_None_Match=tag).status_code == 304


def test_labels_travel_with_the_page(served: Served) -> None:
    until = Interval(NOON - timedelta(seconds=5), NOON + timedelta(seconds=20))
    served.publish(
        (quad("t1", "delay", '"5"'), SOON),
        (quad("t2", "delay", '"7"'), SOON),
        (quad("t2", "platform", '"2"', "live"), until),
    )
    page = served.page("trains?limit=100")
    fragment = BASE + "trains"
    assert page.objects(TMP + "dynamicTriples", fragment) == ["3"]
    assert page.objects(TMP + "annotationMethod", fragment) == ["plain"]
    assert page.objects(TMP + "labelling", fragment) == ["expiration", "interval"]
    assert page.objects(TMP + "evaluatedAt", fragment) == ["2015-12-08T12:00:00Z"]
    assert page.objects(TMP + "plainView", fragment) == [BASE + "trains"]
    # What each of them says is compared with a model in test_views_model.py.
    assert len({row.subject for row in page.metadata if row.predicate == f"<{TMP}predicate>"}) == 2


def test_page_labels_off_is_a_foreign_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("off")
    with Served(folder, STATIC, dataset={"page_labels": False}) as served:
        served.publish((quad("t1", "delay", '"5"'), SOON))
        page = served.page("trains/named-graph?limit=100")
        temporal = {row.predicate for row in page.metadata if TMP in row.predicate}
        assert temporal == {
            f"<{TMP}{name}>" for name in ("evaluatedAt", "mapping", "maximum", "nextChange")
        }
        assert len(page.data) == len(STATIC) + 2


def test_the_implicit_graph_names_fragments_that_exist(served: Served) -> None:
    served.publish((quad("t1", "delay", '"5 & 6"'), SOON))
    rows = served.page("trains/implicit-graph?predicate=" + quote(TMP + "expiration", safe="")).data
    (row,) = rows
    url = row.subject.strip("<>")
    assert served.page(url).data == [quad("t1", "delay", '"5 & 6"')]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "trains", 200), ("GET", "trains?page=0", 400), ("GET", "nothing", 404),
        ("DELETE", "trains", 405), ("GET", "trains?page=1&snapshot=9.999", 400),
        ("PROPFIND", "trains", 405), ("GET", "", 200), ("GET", "trains/no-view", 404),
    ],
)  # fmt: skip
def test_cors_on_every_status(shared: Served, method: str, path: str, status: int) -> None:
    response = shared.request(method, path)
    assert response.status_code == status
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert response.headers["Date"] == "Tue, 08 Dec 2015 12:00:00 GMT"
    assert 'rel="http://www.w3.org/ns/hydra/core#apiDocumentation"' in response.headers["Link"]


def test_cors_never_for_writes(shared: Served) -> None:
    for response in (
        shared.post("", "expiration=2016-01-01T00:00:00Z"),
        shared.get("trains/facts"),
    ):
        assert "Access-Control-Allow-Origin" not in response.headers
    preflight = shared.request("OPTIONS", "trains/facts")
    assert "POST" not in preflight.headers["Access-Control-Allow-Methods"]


def test_errors_are_problems_html_or_rdf_as_negotiated(shared: Served) -> None:
    problem = shared.get("nothing")
    assert problem.headers["Content-Type"] == "application/problem+json"
    assert problem.json()["status"] == 404
    page = shared.get("nothing", "text/html")
    assert page.headers["Content-Type"].startswith("text/html")
    assert "nothing" in page.text
    rdf = shared.get("nothing", "text/turtle")
    assert any(row.object == '"404"^^<http://www.w3.org/2001/XMLSchema#integer>'
               for row in parse(rdf.content, "text/turtle"))  # fmt: skip
    assert {problem.status_code, page.status_code, rdf.status_code} == {404}


READ, WRITE = "GET, HEAD, OPTIONS", "POST, DELETE, OPTIONS"
ALLOWED = {
    "": READ, "trains": READ, "trains.nq": READ, "trains/plain": READ, "trains/rdf-1.2.nt": READ,
    "trains/facts": WRITE, "api-doc": READ, "healthz": READ, "readyz": READ, "metrics": READ,
    ".well-known/genid/trains/b": READ, f"trains/facts/graph/{'0' * 32}": READ,
}  # fmt: skip


@pytest.mark.parametrize("path", ALLOWED)
def test_a_wrong_method_is_405_with_allow(shared: Served, path: str) -> None:
    allowed = ALLOWED[path]
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"):
        response = shared.request(method, path)
        if method in allowed:
            assert response.status_code != 405
        else:
            assert (response.status_code, response.headers["Allow"]) == (405, allowed), method
            if method != "HEAD":
                assert response.json()["detail"] == f"{method} is not allowed here, only {allowed}"
    options = shared.request("OPTIONS", path)
    assert (options.status_code, options.headers["Allow"]) == (204, allowed)


@pytest.mark.parametrize("method", ["GET", "POST", "BREW"])
def test_an_unknown_path_is_404_by_any_method(shared: Served, method: str) -> None:
    for path in ("nothing", "trains/no-view", "nothing/facts", "trains.xyz"):
        assert shared.request(method, path).status_code == 404


@pytest.mark.parametrize(
    "path", ["trains?page=1", "", "api-doc", "nothing", "trains?at=2015-12-08T11:00:00Z"]
)
@pytest.mark.parametrize("accept", ["*/*", "text/html", "application/n-quads"])
def test_forged_host_and_forwarded_headers_change_nothing(
    shared: Served, path: str, accept: str
) -> None:
    honest = shared.get(path, accept)
    forged = shared.get(
        path,
        accept,
        Host="evil.test",
        Forwarded="host=evil.test;proto=https",
        X_Forwarded_Host="evil.test",
        X_Forwarded_Proto="https",
        X_Forwarded_Prefix="/evil",
        X_Forwarded_For="10.0.0.1",
        X_Original_URL="/evil",
    )
    assert forged.content == honest.content
    assert forged.headers == honest.headers


@pytest.mark.parametrize("path", ["healthz", "readyz"])
def test_health(shared: Served, path: str) -> None:
    assert shared.get(path).status_code == 200
    assert shared.get(path).headers["Cache-Control"] == "no-store"
