"""Continuous queries over HTTP, with a real Flask app in process."""

import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from tests.support.continuous_site import (
    EPOCH,
    NDJSON,
    PERIODIC_TEXT,
    QUERY,
    ROOT,
    Site,
    app_of,
    element,
)
from tpf_server.continuous.continuous_engine import EngineLimits
from tpf_server.continuous.service import result_log
from tpf_server.continuous.service.hosting import as_lines
from tpf_server.web.bodies import BodyReader

NEW_YEAR = datetime(2020, 1, 1, tzinfo=UTC)
STREAMS = "<http://localhost/"
CONSTRUCT = "CONSTRUCT { ?b <urn:q> ?a } { STREAM <http://localhost/s> [NOW] { ?a <urn:p> ?b } }"
INTEGER = "^^<http://www.w3.org/2001/XMLSchema#integer>"


@pytest.fixture
def site():
    return Site()


STATED = "timestamp=1970-01-01T00:00:00.003Z"
TSV = "text/tab-separated-values"


@pytest.mark.parametrize(
    ("media_type", "body", "instants"),
    [
        ("application/x-ndjson", '{"triple": ["<urn:a>", "<urn:p>", "\\"1\\""]}', [7]),
        (
            "application/x-ndjson",
            '{"timestamp": null, "triples": [["<a:a>", "<urn:p>", "<b:b>"]]}',
            [7],
        ),
        (TSV, '<urn:a>\t<urn:p>\t"1"', [7]),
        (TSV, '\t_:a\t<urn:p>\t"1"', [7]),
        (TSV, "5\t<urn:a>\t<urn:p>\t<urn:b>", [5]),
        (TSV, '_:a <urn:p> "1" .\n_:b <urn:p> "1" <urn:g> .', [7, 7]),
        ("text/turtle", "@prefix : <urn:> . :a :p 1, 2 .", [7]),
        (f"application/n-triples?{STATED}", '<urn:a> <urn:p> "x" .', [3]),
        (
            f"application/n-quads?{STATED}",
            "<urn:a> <urn:p> <urn:b> <urn:g> .\n<urn:a> <urn:p> <urn:c> .",
            [3, 3],
        ),
        (
            f"application/trig?{STATED}",
            "<urn:g> { <urn:a> <urn:p> 1 } <urn:h> { <urn:a> <urn:p> 1 }",
            [3, 3],
        ),
    ],
)
def test_elements_come_in_many_formats_with_their_time_or_that_of_the_clock(
    site, media_type, body, instants
):
    site.clock.advance_to(EPOCH + timedelta(milliseconds=7))
    site.register()
    kind, _, query = media_type.partition("?")
    pushed = site.post(f"streams/s?{query}", body, {"Content-Type": kind}).json()
    assert (pushed["accepted"], pushed["refused"]) == (len(instants), [])
    found = [each["at"] for each in site.emissions()]
    assert found == [f"1970-01-01T00:00:00.00{at}Z" for at in instants]


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("application/x-ndjson", '{"triple": ["<urn:a>", "<urn:p>", "\\"1\\""]}'),
        (TSV, '<urn:a>\t<urn:p>\t"1"'),
        ("text/turtle", '<urn:a> <urn:p> "1" .'),
        ("application/n-quads", 'VERSION "1.2-messages"\n<urn:a> <urn:p> "1" .'),
        ("application/x-ld+ndjson", '{"@id": "urn:a", "urn:p": "1"}'),
    ],
)
def test_a_byte_order_mark_is_no_part_of_a_body(site, media_type, body):
    assert site.post("queries", f"\ufeff{QUERY}").status_code == 201
    pushed = site.post("streams/s", f"\ufeff{body}", {"Content-Type": media_type})
    assert pushed.json()["accepted"] == 1, pushed.text


def test_from_push_to_results(site):
    created = site.post("queries?name=mine", json={"query": QUERY})
    assert created.status_code == 201
    assert created.headers["Location"] == f"{ROOT}/queries/mine"
    assert created.json()["variables"] == ["a", "b"]
    pushed = site.push(element(1), element(2, b='"2"'))
    assert pushed.json() == {"accepted": 2, "dropped": 0, "late": 0, "refused": []}
    assert site.emissions("mine") == [
        {
            "id": n,
            "sequence": n,
            "at": f"1970-01-01T00:00:00.00{n}Z",
            "added": [{"a": "<urn:a>", "b": f'"{n}"'}],
        }
        for n in (1, 2)
    ]
    state = site.get("queries/mine")
    assert (state["state"], state["emitted"], state["last_event"]) == ("running", 2, 2)
    assert state["joins"][0]["inputs"][0]["rows"] == 2
    assert site.get("queries")["queries"][0]["name"] == "mine"
    assert site.get("streams")["streams"] == [
        {"stream": "http://localhost/s", "elements": 2, "triples": 2, "dropped": 0, "late": 0}
    ]
    assert site.push(element(5), element(4), element(5)).json()["dropped"] == 1


def test_a_batch_that_is_pushed_again_is_not_taken_again(site):
    site.register()
    first = site.push(element(1), element(2), params={"batch": "b1"})
    assert first.json() == {
        "accepted": 2, "dropped": 0, "late": 0, "refused": [], "repeated": False
    }  # fmt: skip
    again = site.push(element(1), element(2), params={"batch": "b1"})
    assert again.json() == first.json() | {"repeated": True}
    # Another stream has batches of its own, and another batch may say the same.
    assert not site.push(element(2), name="t", params={"batch": "b1"}).json()["repeated"]
    assert site.push(element(2), params={"batch": "b2"}).json()["accepted"] == 1
    (s, t) = site.get("streams")["streams"]
    assert (s["elements"], t["elements"]) == (3, 1)
    # What was refused did not happen, so that it may come again.
    assert site.push("no element", params={"batch": "b3"}).status_code == 400
    assert not site.push(element(3), params={"batch": "b3"}).json()["repeated"]


def test_events_resume(site):
    site.register()
    site.push(*(element(at, b=f'"{at}"') for at in range(1, 6)))
    accept = "text/event-stream"
    whole = site.results(accept=accept, params={"follow": "false"})
    assert whole.headers["Content-Type"].startswith(accept)
    events = [event.split("\n") for event in whole.text.strip().split("\n\n")]
    assert [event[0] for event in events] == [f"id: {number}" for number in range(1, 6)]
    resumed = site.session.get(
        f"{ROOT}/queries/1/results",
        params={"follow": "false"},
        headers={"Accept": accept, "Last-Event-ID": "3"},
    )
    assert resumed.text == "\n\n".join("\n".join(event) for event in events[3:]) + "\n\n"


def test_a_reader_waits_for_what_comes_and_ends_with_the_query(site):
    site.register()
    response = site.results(stream=True)
    lines = response.iter_lines(chunk_size=1)
    timer = threading.Timer(0.05, lambda: site.push(element(1)))
    timer.start()
    assert json.loads(next(lines))["id"] == 1
    timer.join()
    assert site.delete("queries/1").status_code == 204
    assert "deleted" in json.loads(next(lines))["error"]
    assert next(lines, None) is None
    assert site.get("queries/1")["status"] == 404


def test_a_slow_reader_is_cut_off():
    site = Site(policies={"backlog": 3})
    site.register()
    site.push(*(element(at) for at in range(1, 6)))
    (line,) = site.results(params={"after": "1"}).text.splitlines()
    assert "no longer kept" in json.loads(line)["error"]
    # A reader without a number begins with what is kept.
    for parameters in ({"after": "2"}, {}):
        assert [each["id"] for each in site.emissions(**parameters)] == [3, 4, 5]


def test_who_does_not_follow_gets_what_is_there_and_its_thread_is_given_back(site, monkeypatch):
    monkeypatch.setattr(result_log, "_PORTION", 1)
    site.register()
    site.push(element(1), element(2, b='"2"'))
    lines = as_lines(site.service.query("1"), 0, follow=False)
    first = next(lines)
    site.push(element(3, b='"3"'))
    assert [json.loads(line)["id"] for line in (first, *lines)] == [1, 2]
    sent = []

    @contextmanager
    def watched(address):
        sent.append(address)
        yield

    client = app_of(site.service, BodyReader(10, watched)).test_client()
    assert client.get("/queries/1/results?follow=false").data
    assert sent == ["127.0.0.1"] * 3


BAD = [
    '{"timestamp": 1}',
    "no JSON",
    '{"timestamp": "soon", "triple": ["<urn:a>", "<urn:p>", "<urn:b>"]}',
    '{"timestamp": 1, "triple": ["<urn:a>", "<urn:p>"]}',
    '{"timestamp": 1, "triple": ["<urn:a>", "<urn:p>", "b"]}',
    '{"timestamp": 1, "triple": ["\\"a\\"", "<urn:p>", "<urn:b>"]}',
    '{"timestamp": 1, "triples": []}',
]


@pytest.mark.parametrize("bad", BAD)
def test_a_malformed_element_refuses_its_batch_with_its_line(site, bad):
    site.register()
    response = site.push(element(1), bad, element(3))
    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"
    assert "line 2" in response.json()["detail"]
    assert site.emissions() == []
    # Or only itself, by setting.
    site = Site(policies={"whole_batches": False})
    site.register()
    receipt = site.push(element(1), bad, element(3)).json()
    assert (receipt["accepted"], receipt["refused"][0]["line"]) == (2, 2)


def lateness(site):
    return {
        each["stream"]: (each["dropped"], each["late"]) for each in site.get("streams")["streams"]
    }


@pytest.mark.parametrize("time", ["clock", "elements"])
def test_a_stream_that_is_ahead_takes_nothing_from_another(time):
    site = Site(policies={"time": time})
    for name in ("s", "ahead"):
        iri = quote(f"http://localhost/{name}", safe="")
        assert site.put(f"streams/{iri}").status_code == 201
    site.register(semantics="paper-rstream")
    site.register(PERIODIC_TEXT.replace("NAME", "periodic"))
    seen = []
    for at in (1, 4, 8):
        site.push(element(at, b=f'"{at}"'), name="s")
        site.push(element(50_000 + at), name="ahead")
        at_its_time = [each for each in site.emissions() if each["at"].endswith(f":00.00{at}Z")]
        seen.append([row["b"] for row in at_its_time[-1]["result"]])
    assert seen == [['"1"'], ['"1"', '"4"'], ['"1"', '"4"', '"8"']]
    assert lateness(site) == {"http://localhost/s": (0, 0), "http://localhost/ahead": (0, 0)}


def test_syntax_errors_point_at_the_place(site):
    response = site.register("SELECT * {\n STREAM <urn:s> [NEVER] { ?a ?b ?c } }")
    problem = response.json()
    assert response.status_code == 400
    assert (problem["line"], problem["column"]) == (2, 18)
    assert problem["pointed"].endswith("^")


def test_what_is_refused(site):
    for authorization in ({}, {"Authorization": "Bearer wrong"}):
        refused = site.session.post(f"{ROOT}/queries", QUERY.encode(), headers=authorization)
        assert refused.status_code == 401
    assert site.delete("queries/1").status_code == 404
    assert site.results("nobody").status_code == 404
    assert site.register(semantics="magic").status_code == 400
    assert site.register(surprise="x").status_code == 400
    assert site.register(into="s").status_code == 422
    assert site.register(name="1").status_code == 201
    assert site.results(accept="text/html").status_code == 406
    assert site.results(params={"after": "x"}).status_code == 400
    assert site.post("streams/s", b"x", {"Content-Type": "image/png"}).status_code == 415
    assert site.push("x" * 20_000).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        '{"query": "SELECT ?a { STREAM <s> [NOW] { ?a <urn:p> \\"\\ud800\\" } }"}',
        '{"query": "SELECT ?a { STREAM <s> [NOW] { ?a ?b ?c } }", "name": "\\ud800"}',
        '{"query": "SELECT ?a { STREAM <s> [NOW] { ?a ?b ?c } }", "name": "a\\u0000b"}',
        '{"query": 5}',
        "[" * 5_000,
        "5",
    ],
)
def test_what_is_no_registration(site, body):
    refused = site.post("queries", body, {"Content-Type": "application/json"})
    assert refused.status_code == 400
    assert site.get("queries") == {"queries": []}


def test_streams_are_made_by_put():
    site = Site(create_streams=False)
    assert site.register().status_code == 404
    assert site.push(element(1)).status_code == 404
    assert [site.put("streams/s").status_code for _ in range(2)] == [201, 204]
    assert site.register().status_code == 201
    assert site.push(element(1)).status_code == 200


PERIODIC = """REGISTER QUERY counts COMPUTED EVERY 10ms AS
SELECT (COUNT(*) AS ?n) FROM STREAM <http://localhost/s> [RANGE 20ms STEP 10ms] { ?a <urn:p> ?b }"""


def counted(number, at, *values):
    rows = [{"n": f'"{n}"{INTEGER}'} for n in values]
    return {"id": number, "sequence": number, "at": f"1970-01-01T00:00:00.{at:03}Z", "result": rows}


def test_c_sparql_answers_at_its_instants(site):
    made = site.register(PERIODIC)
    assert made.status_code == 201
    assert made.headers["Location"].endswith("/queries/counts")
    assert made.json()["language"] == "C-SPARQL"
    assert made.json()["every_ms"] == [10]
    assert site.push(element(1), element(15, b='"2"'), element(32)).json()["late"] == 0
    found = site.emissions("counts")
    assert found == [counted(1, 10, 1), counted(2, 20, 2), counted(3, 30, 1)]
    # 25 should have been seen at 30.
    assert site.push(element(25)).json()["late"] == 1
    state = site.get("queries/counts")
    assert (state["state"], state["emitted"], state["late"]) == ("running", 3, 1)
    assert site.emissions("counts", after="2") == found[2:]
    (listed,) = site.get("queries")["queries"]
    assert (listed["name"], listed["language"]) == ("counts", "C-SPARQL")


def test_a_registered_stream_feeds_queries_of_both_languages(site):
    site.register(
        "REGISTER STREAM turned COMPUTED EVERY 10ms AS CONSTRUCT { ?b <urn:q> ?a }"
        " FROM STREAM <s> [RANGE 10ms TUMBLING] { ?a <urn:p> ?b }"
    )
    site.register(
        "SELECT ?x FROM STREAM <turned> [RANGE 10ms TUMBLING] { ?x <urn:q> ?y }", name="periodic"
    )
    site.register(
        "SELECT ?x { STREAM <http://localhost/turned> [NOW] { ?x <urn:q> ?y } }", name="native"
    )
    site.push(element(1, b="<urn:b>"), element(2, b="<urn:c>"), element(13))
    (answer,) = site.emissions("periodic")
    assert sorted(row["x"] for row in answer["result"]) == ["<urn:b>", "<urn:c>"]
    emitted = site.emissions("native")
    assert sorted(row["x"] for each in emitted for row in each["added"]) == ["<urn:b>", "<urn:c>"]
    assert {each["at"] for each in emitted} == {"1970-01-01T00:00:00.010Z"}
    turned = {
        "stream": "http://localhost/turned", "elements": 1, "triples": 2, "dropped": 0, "late": 0
    }  # fmt: skip
    assert turned in site.get("streams")["streams"]
    assert site.delete("queries/turned").status_code == 204
    site.push(element(40))
    assert len(site.emissions("native")) == len(emitted)


def test_a_stream_made_in_cqels_ql_feeds_c_sparql(site):
    made = site.register(CONSTRUCT, into="http://localhost/turned", name="native")
    assert made.json()["stream"] == "http://localhost/turned"
    page = site.ask("GET", "queries/native", None, {"Accept": "text/html"}).text
    assert "http://localhost/turned" in page
    site.register("SELECT ?x FROM STREAM <turned> [RANGE 10ms TUMBLING] { ?x <urn:q> ?y }")
    site.push(element(10, b="<urn:b>"), element(11, b="<urn:c>"))
    (answer,) = site.emissions()
    assert answer["result"] == [{"x": "<urn:b>"}]
    loop = site.register(
        "REGISTER STREAM s AS CONSTRUCT { ?x <urn:p> ?y }"
        " FROM STREAM <turned> [RANGE 10ms TUMBLING] { ?x <urn:q> ?y }"
    )
    assert (loop.status_code, "feed itself" in loop.json()["detail"]) == (422, True)
    assert site.get("queries/s")["status"] == 404


def test_now_is_the_instant_of_an_answer_in_c_sparql(site):
    window = "FROM STREAM <http://localhost/s> [RANGE 20ms STEP 10ms]"
    past = "FILTER(NOW() > '1970-01-01T00:00:00.01Z'^^<http://www.w3.org/2001/XMLSchema#dateTime>)"
    site.register(f"SELECT ?a (NOW() AS ?n) {window} {{ ?a <urn:p> ?b }}", name="said")
    site.register(f"SELECT ?a {window} {{ ?a <urn:p> ?b {past} }}", name="compared")
    # Nothing of a stream is compared here.
    site.register(f"ASK {window} {{ {past} }}", name="alone")
    site.push(element(1), element(31, "<urn:c>"))
    times = [f'"1970-01-01T00:00:00.0{n}Z"' for n in (1, 2, 3)]
    typed = [f"{each}^^<http://www.w3.org/2001/XMLSchema#dateTime>" for each in times]
    both = [[{"a": "<urn:a>", "n": each}] for each in typed[:2]]
    for name, expected in (
        ("said", [*both, []]),
        ("compared", [[], [{"a": "<urn:a>"}], []]),
        ("alone", [False, True, True]),
    ):
        assert [each["result"] for each in site.emissions(name)] == expected


def test_what_is_refused_of_c_sparql(site):
    wrong = site.register(PERIODIC.replace("STEP 10ms", "STEP 30ms"))
    assert wrong.status_code == 400
    assert (wrong.json()["line"], wrong.json()["pointed"][-1]) == (2, "^")
    assert site.register("SELECT * { ?s ?p ?o }", semantics="csparql").status_code == 422
    assert site.register(PERIODIC, into="x").status_code == 400
    assert site.register(PERIODIC, semantics="paper").status_code == 400
    assert site.register(PERIODIC, name="other").status_code == 400
    assert site.register(PERIODIC, name="counts").status_code == 201
    assert site.register(PERIODIC).status_code == 409
    assert site.register(QUERY, name="counts").status_code == 409
    assert site.register(QUERY, name="a/b").status_code == 400
    # A name that is an IRI becomes its last segment.
    named = site.register(PERIODIC.replace("counts", "<http://example.org/queries#mine>"))
    assert named.headers["Location"].endswith("/queries/mine")


def test_limits_of_c_sparql():
    site = Site(limits=EngineLimits(queries=1, window_rows=5))
    site.register(PERIODIC)
    assert site.register(PERIODIC.replace("counts", "more")).status_code == 429
    site.push(*(element(1, b=f'"{n}"') for n in range(9)))
    (line,) = site.emissions("counts")
    assert "more than 5 elements" in line["error"]
    assert site.get("queries/counts")["state"] == "stopped"
    # The others go on.
    assert site.register(PERIODIC.replace("counts", "more")).status_code == 201


def test_more_followers_than_allowed_are_sent_away_and_may_poll():
    site = Site(followers=2)
    site.register()
    for _ in range(3):  # which keeps no place
        assert site.session.head(f"{ROOT}/queries/1/results").status_code == 200
    first, second, third = (site.results(stream=True) for _ in range(3))
    assert (first.status_code, second.status_code, third.status_code) == (200, 200, 503)
    assert third.headers["Retry-After"] == "1"
    assert "2 readers follow" in third.json()["detail"]
    assert site.results(params={"follow": "false"}).status_code == 200
    first.close()
    fourth, fifth = site.results(stream=True), site.results(stream=True)
    assert (fourth.status_code, fifth.status_code) == (200, 503)
    second.close()
    fourth.close()


def test_a_number_of_another_run_is_refused():
    """Also where an event of this run would have it, if numbers began with 1."""
    site = Site()
    site.register(name="q")
    site.push(element(1))
    (first,) = site.emissions("q")
    assert site.delete("queries/q").status_code == 204
    site.clock.advance_to(NEW_YEAR)
    site.register(name="q")
    site.push(element(1), element(2))
    found = site.emissions("q")
    begin = int(NEW_YEAR.timestamp()) * 1_000_000
    assert [each["id"] for each in found] == [begin + 1, begin + 2]
    for stale in (first["id"], begin - 1, begin + 3):
        for follow in ("true", "false"):
            refused = site.results("q", params={"after": str(stale), "follow": follow})
            assert refused.status_code == 410
            assert f"numbered from {begin + 1}" in refused.json()["detail"]
    assert site.emissions("q", after=str(begin)) == found


def test_a_stream_in_use_is_not_deleted(site):
    made = "http://localhost/made"
    site.register(name="reader")
    site.register(CONSTRUCT, name="maker", into=made)
    site.register(PERIODIC)
    site.push(element(1))
    assert site.get("streams/s") == {
        "stream": "http://localhost/s", "elements": 1, "triples": 1, "dropped": 0, "late": 0
    }  # fmt: skip
    assert site.session.delete(f"{ROOT}/streams/s").status_code == 401
    refused = site.delete("streams/s")
    assert refused.status_code == 409
    assert "is read or made by reader, maker, counts" in refused.json()["detail"]
    produced = f"streams/{quote(made, safe='')}"
    assert "maker" in site.delete(produced).json()["detail"]
    for name in ("reader", "maker", "counts"):
        site.delete(f"queries/{name}")
    for each in ("streams/s", produced):
        assert site.delete(each).status_code == 204
        assert (site.get(each)["status"], site.delete(each).status_code) == (404, 404)
    assert site.get("streams") == {"streams": []}
    assert site.push(element(2)).json()["accepted"] == 1


def test_a_deleted_stream_forgets_what_waits_in_it_and_what_came():
    site = Site(policies={"lateness": 1_000})
    for name in "st":
        site.push(element(1), name=name, params={"batch": "b1"})
    assert site.delete("streams/s").status_code == 204
    site.push(element(10_000), name="t")
    assert site.get("streams/s")["status"] == 404
    again = [site.push(element(1), name=name, params={"batch": "b1"}).json() for name in "st"]
    assert [each["repeated"] for each in again] == [False, True]


def test_the_name_of_a_stream_must_be_an_iri(site):
    body = json.dumps(element(1))
    for name in ("a%20b", "%7Bx%7D"):
        for call in (site.post, site.put):
            refused = call(f"streams/{name}", body, NDJSON)
            assert refused.status_code == 400
            assert "not an IRI" in refused.json()["detail"]
    assert site.register(CONSTRUCT, into="not an iri", name="q").status_code == 400
    # What was refused feeds nothing under its name.
    assert site.register(CONSTRUCT, name="q").status_code == 201
    site.push(element(1, b="<urn:b>"))
    assert len(site.get("streams")["streams"]) == 1


def test_what_is_kept_is_limited_by_rows_too():
    site = Site(policies={"backlog": 100, "rows": 5})
    site.register(QUERY.replace("?a ?b {", "?a {", 1) + " ORDER BY ?a", semantics="paper-rstream")
    site.push(*(element(1, b=f'"{n}"') for n in range(4)))
    (kept,) = site.emissions()
    assert (len(kept["result"]), kept["id"]) == (4, 4)


def test_the_format_is_negotiated(site):
    site.register()
    for accept, chosen in (
        (None, "text/event-stream"),
        ("text/event-stream;q=0.5, application/x-ndjson", "application/x-ndjson"),
    ):
        found = site.results(accept=accept, params={"follow": "false"})
        assert found.headers["Content-Type"].startswith(chosen)


def test_bodies_are_texts_up_to_a_length(site):
    for path in ("streams/s", "queries"):
        garbled = site.post(path, b"\xff", NDJSON)
        assert garbled.status_code == 400
        assert "not UTF-8 at byte 0" in garbled.json()["detail"]
    assert site.post("queries", b"x" * 20_000).status_code == 413


def test_a_put_may_bring_elements(site):
    site.register()
    body = json.dumps(element(1))
    made = site.put("streams/s", body, NDJSON)
    assert (made.status_code, made.json()["accepted"]) == (200, 1)
    for kind, status in (("image/png", 415), ("text/turtle", 400)):
        refused = site.put("streams/fresh", body, {"Content-Type": kind})
        assert (refused.status_code, site.get("streams/fresh")["status"]) == (status, 404)
    assert site.put("streams/fresh", body, NDJSON).status_code == 201


def test_what_cannot_be_said_in_cqels_ql(site):
    nested = QUERY.replace("}", "FILTER EXISTS { ?a <urn:p> ?c FILTER(?c < now()) } }", 1)
    for text, reason in (
        (QUERY.replace("?a ?b", "?a (NOW() AS ?n)", 1), "line 1, column 12: CQELS-QL has no NOW()"),
        (nested, "column 115: CQELS-QL has no NOW()"),
        (QUERY.replace("?b", "(<urn:f>() AS ?n)", 1), "column 12: unknown function <urn:f>"),
        ("SELECT * { ?s ?p ?o }", "this query would never emit"),
    ):
        refused = site.register(text)
        assert refused.status_code == 422
        assert reason in refused.json()["detail"]


FED = "CONSTRUCT { ?a <urn:p> ?b }"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (QUERY, {"into": "t"}),
        (QUERY.replace("{ STREAM", "{ { STREAM").replace("}", "} FILTER(1/0 = <urn:f>()) } }"), {}),
        (f"{FED} {{ STREAM <s> [NOW] {{ ?a <urn:p> ?b }} }}", {"into": "s"}),
        (f"REGISTER STREAM <s> AS {FED} FROM STREAM <s> [RANGE 1ms TUMBLING] {{ ?a ?c ?b }}", {}),
        (
            f"REGISTER RSTREAM <s> AS {FED} FROM NAMED WINDOW <w> ON <s> [RANGE PT1S] "
            "{ WINDOW <w> { ?a ?c ?b } }",
            {},
        ),
    ],
)
def test_a_query_that_is_refused_leaves_no_streams(site, text, options):
    assert site.register(text, **options).status_code in (400, 422)
    assert site.get("streams")["streams"] == []


def test_blank_nodes_of_two_bodies_are_two(site):
    site.register(
        "SELECT ?a ?b { STREAM <http://localhost/s> [ALL] { ?a <urn:p> ?x . ?b <urn:q> ?y } }"
    )
    for predicate in "pq":
        site.post("streams/s", f"_:same <urn:{predicate}> 1 .", {"Content-Type": "text/turtle"})
    (found,) = site.emissions()
    (row,) = found["added"]
    assert row["a"] != row["b"]


@pytest.mark.parametrize("text", [QUERY, PERIODIC_TEXT])
def test_an_error_in_a_callback_is_the_state_of_its_query(site, text, monkeypatch):
    """Whatever the server does with results: if it fails for one query, others get theirs."""
    for name in ("first", "broken", "last"):
        site.register(text.replace("NAME", name), name=name)

    def append(_emission):
        raise OSError("no space left")

    monkeypatch.setattr(site.service.query("broken").log, "append", append)
    for at in (1, 2, 12):
        assert site.push(element(at)).json()["accepted"] == 1
    for name in ("first", "last"):
        assert site.get(f"queries/{name}")["state"] == "running"
        assert len(site.emissions(name)) == (3 if text is QUERY else 2)
    state = site.get("queries/broken")
    says = "the callback of query broken raised OSError: no space left"
    assert (state["state"], state["error"]) == ("stopped", says)
    assert says in site.results("broken", params={"follow": "false"}).text


def test_a_stream_that_declares_its_predicates_refuses_others(site):
    """And what queries make of them are none, too: such a query is stopped, and says why."""
    both = {"predicate": ["urn:p", "urn:q"]}
    assert site.put("streams/s", params=both).status_code == 201
    assert site.get("streams/s")["predicates"] == ["urn:p", "urn:q"]
    refused = site.push(element(1), {"timestamp": 1, "triple": ["<urn:a>", "<urn:r>", "<urn:b>"]})
    assert refused.status_code == 400
    assert "<http://localhost/s> does not declare the predicate <urn:r>" in refused.json()["detail"]
    assert site.put("streams/t", params={"predicate": "a b"}).status_code == 400
    assert "http://localhost/t" not in lateness(site)
    assert site.put("streams/made", params={"predicate": "urn:x"}).status_code == 201
    text = "CONSTRUCT { ?a <urn:y> ?b } { STREAM <s> [NOW] { ?a <urn:p> ?b } }"
    site.register(text, name="cqels", into="made")
    site.register(
        "REGISTER STREAM made AS CONSTRUCT { ?a <urn:y> ?b }"
        " FROM STREAM <s> [RANGE 5ms STEP 5ms] { ?a <urn:p> ?b }"
    )
    assert site.push(element(1), element(7)).status_code == 200
    for name in ("cqels", "made"):
        state = site.get(f"queries/{name}")
        assert state["state"] == "stopped"
        assert "<http://localhost/made> does not declare the predicate <urn:y>" in state["error"]


def test_a_stream_that_is_a_variable(site):
    """It waits, with a reason, until there is a stream; it reads those that come later."""
    text = "SELECT ?s ?a { STREAM ?s [RANGE 10ms] { ?a <urn:p> ?b } }"
    assert site.register(text, name="every").status_code == 201
    state = site.get("queries/every")
    assert (state["state"], state["reason"]) == ("waiting", "?s: there is no stream")
    assert site.get("queries")["queries"][0]["state"] == "waiting"
    site.push(element(1))
    site.push(element(2), name="t")
    assert [each["added"] for each in site.emissions("every")] == [
        [{"s": f"{STREAMS}{name}>", "a": "<urn:a>"}] for name in ("s", "t")
    ]
    state = site.get("queries/every")
    assert state["state"] == "running"
    assert [each["reads"] for each in state["streams"]] == [[f"{STREAMS[1:]}{n}" for n in "st"]]
    assert site.delete("streams/s").status_code == 204
    assert site.get("queries/every")["streams"][0]["reads"] == [f"{STREAMS[1:]}t"]
    made = "CONSTRUCT { ?a <urn:p> ?s } WHERE { STREAM ?s [NOW] { ?a <urn:p> ?b } }"
    refused = site.register(made, into="made")
    assert (refused.status_code, "the one that it makes" in refused.text) == (422, True)


def test_descriptions_of_what_comes(site):
    site.service._engine.add([("<urn:a>", "<urn:name>", '"A"')])
    text = "DESCRIBE ?a { STREAM <s> [NOW] { ?a <urn:p> ?b } }"
    assert site.register(text, name="about", into="made").status_code == 201
    site.register("SELECT ?n { STREAM <made> [NOW] { ?a <urn:name> ?n } }", name="names")
    site.push(element(1))
    for name, row in (("about", ["<urn:a>", "<urn:name>", '"A"']), ("names", {"n": '"A"'})):
        assert [each["added"] for each in site.emissions(name)] == [[row]]
