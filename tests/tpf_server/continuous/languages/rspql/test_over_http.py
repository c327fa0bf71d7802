"""RSP-QL over HTTP: registration, what emissions are, output streams, settings, restarts."""

import json
from pathlib import Path

import pytest

from annotations.clock import ManualClock
from tests.support.continuous_site import EPOCH, Site, element
from tpf_server.continuous.service.assembly import continuous_service
from tpf_server.errors import SettingsError
from tpf_server.settings import Settings

WINDOW = "FROM NAMED WINDOW <w> ON <http://localhost/s> [RANGE 4ms STEP 2ms]"
WHERE = "WHERE { WINDOW <w> { ?a <urn:p> ?b } }"
SELECTED = f"SELECT ?a {WINDOW} {WHERE}"
FED = f"REGISTER RSTREAM <http://localhost/s> AS CONSTRUCT {{ ?a ?a ?b }} {WINDOW} {WHERE}"


@pytest.fixture
def site() -> Site:
    return Site(policies={"time": "elements"})


def element_in(graph: str) -> str:
    triple = ["<urn:a>", "<urn:p>", '"4"']
    return json.dumps({"timestamp": 1, "triple": triple, "graph": graph})


def push(site: Site) -> None:
    assert site.push(element(1), element(3, "<urn:b>"), element(9, "<urn:c>")).status_code == 200


@pytest.mark.parametrize(
    ("operator", "relation", "shown"),
    [
        ("RSTREAM", "result", {4: {"<urn:a>", "<urn:b>"}, 6: {"<urn:b>"}, 8: set()}),
        ("ISTREAM", "added", {4: {"<urn:a>", "<urn:b>"}}),
        ("DSTREAM", "removed", {6: {"<urn:a>"}, 8: {"<urn:b>"}}),
    ],
)
def test_what_emissions_are(
    site: Site, operator: str, relation: str, shown: dict[int, set[str]]
) -> None:
    created = site.register(f"REGISTER {operator} <http://localhost/streams/out> AS {SELECTED}")
    assert created.status_code == 201
    assert created.headers["Location"].endswith("/queries/out")
    push(site)
    found = {
        int(each["at"][-4:-1]): {row["a"] for row in each[relation]}
        for each in site.emissions("out")
    }
    assert found == shown
    state = site.get("queries/out")
    assert (state["language"], state["semantics"]) == ("RSP-QL", "rspql")
    assert (state["operator"], state["report"], state["tick"]) == (operator, "window close", "time")
    assert state["windows"][0]["window"] == "RANGE 4ms STEP 2ms"


def test_an_output_stream_feeds_queries_of_all_languages(site: Site) -> None:
    made = "http://localhost/out"
    text = f"CONSTRUCT {{ GRAPH ?a {{ ?a <urn:q> ?b }} ?a <urn:r> 1 }} {WINDOW} {WHERE}"
    head = f"REGISTER ISTREAM <{made}> REPORT CONTENT CHANGE TICK TUPLE AS"
    assert site.register(f"{head} {text}").status_code == 201
    site.register(f"SELECT ?a {{ STREAM <{made}> [RANGE 9ms] {{ ?a <urn:q> ?b }} }}", name="cqels")
    site.register(
        f"SELECT ?a FROM STREAM <{made}> [RANGE 8ms STEP 4ms] {{ ?a <urn:q> ?b }}", name="csparql"
    )
    push(site)
    made_rows = [each["added"] for each in site.emissions("out")]
    assert made_rows[0] == [
        ["<urn:a>", "<urn:q>", '"1"', "<urn:a>"],
        ["<urn:a>", "<urn:r>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>', None],
    ]
    assert [each["added"] for each in site.emissions("cqels")] == [
        [{"a": "<urn:a>"}], [{"a": "<urn:b>"}], [{"a": "<urn:c>"}],
    ]  # fmt: skip
    assert {row["a"] for each in site.emissions("csparql") for row in each["result"]} == {
        "<urn:a>", "<urn:b>",
    }  # fmt: skip
    counts = {each["stream"]: each["elements"] for each in site.get("streams")["streams"]}
    # Each graph is an element, and so are the triples of none.
    assert counts[made] == 6


def test_elements_bring_their_graphs(site: Site) -> None:
    where = "{ WINDOW <w> { GRAPH ?g { ?a <urn:p> ?b } } }"
    assert site.register(f"SELECT ?g ?b {WINDOW} {where}", name="named").status_code == 201
    seen_by = {"csparql": "SELECT ?b FROM STREAM <http://localhost/s> [RANGE 4ms STEP 2ms]"}
    seen_by["cqels"] = "SELECT ?b { STREAM <http://localhost/s> [RANGE 4ms] { ?a <urn:p> ?b } }"
    seen_by["csparql"] += " { ?a <urn:p> ?b }"
    for name, text in seen_by.items():
        assert site.register(text, name=name).status_code == 201
    for kind, body in (
        (
            "application/n-quads?timestamp=1",
            '<urn:a> <urn:p> "1" <urn:g1> .\n<urn:a> <urn:p> "0" .',
        ),
        ("application/trig?timestamp=1", '<urn:g2> { <urn:a> <urn:p> "2" }'),
        ("text/plain", '1\t<urn:a> <urn:p> "3" <urn:g3> .'),
        ("application/x-ndjson", element_in("<urn:g4>")),
    ):
        media_type, _, query = kind.partition("?")
        stream = f"streams/http%3A%2F%2Flocalhost%2Fs?{query}"
        taken = site.post(stream, body, {"Content-Type": media_type})
        assert taken.status_code == 200, taken.text
        assert taken.json()["refused"] == []
    refused = site.push(element_in('"none"'))
    assert refused.status_code == 400
    assert "not the name of a graph: '\"none\"'" in refused.json()["detail"]
    push(site)
    first = next(each for each in site.emissions("named") if each["result"])
    assert {(row["g"], row["b"]) for row in first["result"]} == {
        (f"<urn:g{n}>", f'"{n}"') for n in range(1, 5)
    }
    for name, relation in (("csparql", "result"), ("cqels", "added")):
        found = {row["b"] for each in site.emissions(name) for row in each[relation]}
        assert found >= {f'"{n}"' for n in range(5)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"text": SELECTED.replace("4ms", "four")}, "line 1, column 64: expected a duration"),
        ({"text": SELECTED, "into": "http://localhost/o"}, "REGISTER says in the text which"),
        ({"text": SELECTED, "engine": "spark"}, "unknown engine 'spark'"),
        ({"text": SELECTED, "semantics": "csparql"}, "expected"),
        ({"text": SELECTED, "semantics": "RSPQL"}, "unknown semantics 'RSPQL'"),
        ({"text": FED}, "would feed itself"),
    ],
)
def test_bad_input(site: Site, options: dict[str, str], said: str) -> None:
    refused = site.register(**options)
    assert refused.status_code in (400, 422)
    assert said in refused.json()["detail"]
    assert site.get("queries")["queries"] == []


def test_one_query_for_each_output(site: Site) -> None:
    text = f"REGISTER RSTREAM <http://localhost/out> AS {SELECTED}"
    assert site.register(text, name="one").status_code == 201
    assert site.register(text, name="two").status_code == 409
    assert site.delete("queries/one").status_code == 204
    assert site.register(text, name="two").status_code == 201


def test_settings_say_what_a_query_does_not(tmp_path: Path) -> None:
    settings = Settings(
        base_url="http://localhost/",
        continuous=True,
        stream_time="elements",
        rspql_report="content change, non-empty content",
        rspql_tick="batch",
        keep_queries=True,
        data_dir=str(tmp_path),
    )
    clock = ManualClock(EPOCH)
    first = continuous_service(settings, [], clock)
    first.create_stream("http://localhost/s")
    named = first.register(SELECTED, name="named").explain()
    assert (named["report"], named["tick"]) == ("content change, non-empty content", "batch")
    first.register(f"REGISTER ISTREAM <o> REPORT PERIODIC 5s AS {SELECTED}", name="mine")
    first.close()
    again = continuous_service(settings, [], clock)
    assert [each.id for each in again.queries()] == ["named", "mine"]
    assert again.explain("mine")["report"] == "periodic 5000ms"
    again.close()


def test_settings_that_are_none() -> None:
    with pytest.raises(SettingsError, match=r"rspql_tick is time, batch or tuple, not 'never'"):
        Settings(rspql_tick="never")
    with pytest.raises(SettingsError, match=r"rspql_report: line 1, column 1: expected WINDOW CL"):
        continuous_service(Settings(rspql_report="never"), [], ManualClock(EPOCH))
    for given, reason in (
        (Settings(declare={"a b": "urn:p"}), "declare: not an IRI: <.*a b>"),
        (Settings(declare={"s": "a<b"}), "declare: not a term: '<.*a<b>'"),
        (Settings(remote={"a b": "http://x/"}), "remote: not a term: '<.*a b>'"),
    ):
        with pytest.raises(SettingsError, match=f"^{reason}"):
            continuous_service(given, [], ManualClock(EPOCH))
