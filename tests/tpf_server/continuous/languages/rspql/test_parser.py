"""What is RSP-QL, and what is wrong about texts that are not."""

import pytest

from tpf_server.continuous.languages.rspql.parser import parse, parse_report
from tpf_server.continuous.languages.rspql.rspql_query import ReportPolicy
from tpf_server.continuous.runtime.errors import (
    ContinuousSyntaxError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.service.hosting import CSPARQL, RSPQL, semantics_of

WHERE = "WHERE { WINDOW <w> { ?s ?p ?o } }"
NOON, WEEK = '"noon"', '"1969-W01-1T00:00:00Z"'


def query(window: str = "[RANGE PT10S STEP PT5S]", head: str = "", where: str = WHERE) -> str:
    return f"{head} SELECT * FROM NAMED WINDOW <w> ON <s> {window} {where}"


def registered(said: str, window: str = "[RANGE PT10S STEP PT5S]") -> str:
    return query(window, head=f"REGISTER RSTREAM <o> {said} AS")


def inside(body: str) -> str:
    return query(where=f"{{ WINDOW <w> {{ {body} }} }}")


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ("[RANGE PT10S STEP PT5S]", "RANGE 10000ms STEP 5000ms"),
        ("[range pt1h30m, slide 2 minutes]", "RANGE 5400000ms STEP 120000ms"),
        ("[RANGE 5 s, SLIDE 2s]", "RANGE 5000ms STEP 2000ms"),
        ("[RANGE 10 STEP 2]", "RANGE 10ms STEP 2ms"),
        ("[RANGE PT0.5S]", "RANGE 500ms STEP 500ms"),
        ("[RANGE P1DT1S STEP PT1S]", "RANGE 86401000ms STEP 1000ms"),
        ("[FROM NOW-PT9S TO NOW-PT5S STEP PT1S]", "FROM NOW-9000ms TO NOW-5000ms STEP 1000ms"),
        ("[FROM NOW-10s TO NOW STEP 5s]", "RANGE 10000ms STEP 5000ms"),
        ("[RANGE 10s STARTING AT 7]", "RANGE 10000ms STEP 10000ms STARTING AT 7ms"),
        (
            '[RANGE 10s STARTING AT "1970-01-01T01:00:01+01:00"]',
            "RANGE 10000ms STEP 10000ms STARTING AT 1000ms",
        ),
        (
            '[RANGE 10s STARTING AT "1969-12-31T24:00:00Z"]',
            "RANGE 10000ms STEP 10000ms",
        ),
        ("[ELEMENTS 10 STEP 2]", "ELEMENTS 10 STEP 2"),
        ("[ELEMENTS 10]", "ELEMENTS 10 STEP 1"),
    ],
)  # fmt: skip
def test_windows(window: str, said: str) -> None:
    usual = query(window)
    for said_otherwise in (f"ON <s> {window}", f"{window} ON STREAM <s>", f"<s> {window}"):
        text = usual.replace(f"ON <s> {window}", said_otherwise)
        (clause,) = parse(text).streams
        assert str(clause.window) == said
        assert clause.stream == "<http://localhost/s>"


@pytest.mark.parametrize(
    ("head", "form", "operator"),
    [
        ("REGISTER RSTREAM <o> AS", "SELECT *", "RSTREAM"),
        ("REGISTER ISTREAM <o> AS", "SELECT *", "ISTREAM"),
        ("register dstream <o> as", "SELECT *", "DSTREAM"),
        ("REGISTER RStream <o> AS PREFIX : <http://x/>", "SELECT *", "RSTREAM"),
        ("REGISTER STREAM <o> AS", "SELECT *", "RSTREAM"),
        ("REGISTER STREAM <o> AS", "SELECT ISTREAM *", "ISTREAM"),
        ("REGISTER STREAM <o> AS", "CONSTRUCT DSTREAM { ?s ?p ?o }", "DSTREAM"),
        ("REGISTER ISTREAM <o> AS", "CONSTRUCT ISTREAM { ?s ?p ?o }", "ISTREAM"),
        ("PREFIX : <http://x/> . REGISTER ISTREAM :o AS", "ASK", "ISTREAM"),
        ("", "SELECT ISTREAM DISTINCT ?s", "ISTREAM"),
        ("", "SELECT *", "RSTREAM"),
    ],
)
def test_operators(head: str, form: str, operator: str) -> None:
    assert parse(query(head=head).replace("SELECT *", form)).operator == operator


@pytest.mark.parametrize(
    ("said", "policy", "tick"),
    [
        ("", ReportPolicy(window_close=True), "time"),
        ("REPORT CONTENT CHANGE", ReportPolicy(content_change=True), "time"),
        (
            "REPORT WINDOW CLOSE, NON-EMPTY CONTENT",
            ReportPolicy(window_close=True, non_empty=True),
            "time",
        ),
        ("REPORT non empty content TICK TUPLE", ReportPolicy(non_empty=True), "tuple"),
        (
            "REPORT PERIODIC PT5S AND CONTENT CHANGE TICK batch",
            ReportPolicy(content_change=True, period=5000),
            "batch",
        ),
        ("TICK BATCH", ReportPolicy(window_close=True), "batch"),
    ],
)
def test_policies(said: str, policy: ReportPolicy, tick: str) -> None:
    found = parse(query(head=f"REGISTER RSTREAM <o> {said} AS"))
    assert (found.report, found.tick) == (policy, tick)


def test_what_the_text_does_not_say_is_given() -> None:
    given = parse_report("content change, periodic 2s")
    assert given == ReportPolicy(content_change=True, period=2000)
    found = parse(query(), report=given, tick="batch")
    assert (found.report, found.tick) == (given, "batch")
    assert parse(query("[ELEMENTS 2]")).tick == "tuple"
    assert parse_report(str(given)) == given


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [
        (query("[RANGE 0]"), "RANGE takes at least one millisecond", "0]"),
        (query("[RANGE 5s STEP 0s]"), "STEP takes at least one millisecond", "0s]"),
        (query("[RANGE 5 parsecs]"), "expected a unit of time: ms, s, m, h or d", "parsecs]"),
        (query("[RANGE P1Y]"), "expected a duration", "P1Y]"),
        (query("[RANGE PT]"), "'PT' is a duration of nothing", "PT]"),
        (query("[RANGE PT5X]"), "expected a duration", "PT5X]"),
        (query("[RANGE 5s"), "expected ']', found 'WHERE'", "WHERE"),
        (query("[TRIPLES 5]"), "expected RANGE, FROM or ELEMENTS", "TRIPLES"),
        (query("[ELEMENTS 0]"), "expected a number of elements, found '0'", "0]"),
        (query("[FROM NOW-5s TO NOW-9s]"), "a window begins before it ends", "FROM"),
        (query(f"[RANGE 5s STARTING AT {NOON}]"), "'noon' is no instant with a time zone", NOON),
        (query(f"[RANGE 5s STARTING AT {WEEK}]"), "00Z' is no instant with a time zone", WEEK),
        (query(head="REGISTER QUERY <o> AS"), "expected STREAM, ISTREAM, DSTREAM", "QUERY"),
        (query(head="REGISTER RSTREAM o AS"), "expected the IRI of the output stream", "o"),
        (registered("REPORT NEVER"), "expected WINDOW CLOSE, CONTENT", "NEVER"),
        (
            registered("REPORT WINDOW CLOSE, WINDOW CLOSE"),
            "this strategy stands here twice",
            "WINDOW",
        ),
        (registered("TICK TOCK"), "expected TIME, BATCH or TUPLE", "TOCK"),
        (registered("UNDER ENTAILMENT REGIME <r>"), "REGIME: nothing is entailed here", "UNDER"),
        (registered("REPORT NON-EMPTY CONTENT"), "NON-EMPTY CONTENT alone holds", "NON-EMPTY"),
        (registered("TICK TIME", "[ELEMENTS 3]"), "are moved by elements: TICK TUPLE", "TIME"),
        (registered("REPORT PERIODIC 5s", "[ELEMENTS 3]"), "PERIODIC needs time, and", "PERIODIC"),
        *(
            (
                registered(f"REPORT WINDOW CLOSE, PERIODIC 10{tick}", "[RANGE 5 STEP 10]"),
                "no window ever closes at a multiple of the period",
                "WINDOW CLOSE",
            )
            for tick in ("", " TICK BATCH", " TICK TUPLE")
        ),
        (
            query(head="REGISTER ISTREAM <o> AS").replace("SELECT", "SELECT DSTREAM"),
            "REGISTER says ISTREAM already",
            "DSTREAM",
        ),
        (
            "REGISTER RSTREAM <o> AS SELECT * { ?s ?p ?o }",
            "FROM NAMED WINDOW is missing",
            "REGISTER",
        ),
        (query().replace("NAMED ", ""), "a window is NAMED: FROM NAMED WINDOW", "FROM"),
        (query().replace("ON <s>", "ON ?s"), "a stream is named by an IRI", "?s"),
        (
            query(where="FROM NAMED WINDOW <w> ON <t> [RANGE 5s] " + WHERE),
            "there is a window of this name already",
            "<w>",
        ),
        (query(where="{ WINDOW <v> { ?s ?p ?o } }"), "FROM NAMED WINDOW names no such", "<v>"),
        (inside("GRAPH ?g { { ?s ?p ?o } BEGIN AT ?t }"), "AT cannot stand inside GRAPH", "{ ?s"),
        (inside("GRAPH ?g { WINDOW <w> { } }"), "cannot stand inside WINDOW", "WINDOW <w> { } }"),
        (query(where="{ WINDOW ?v { WINDOW <w> { } } }"), "cannot stand inside WINDOW", "WINDOW"),
        (query(where="{ GRAPH ?g { WINDOW <w> { } } }"), "cannot stand inside GRAPH", "WINDOW"),
        (query(where="{ WINDOW <w> ?s }"), "expected '{', found '?s'", "?s"),
        (query(where="{ { ?s ?p ?o } BEGIN AT ?t }"), "BEGIN AT stands behind one triple", "{"),
        (inside("{ <a> <b> <c> } BEGIN AT ?t"), "BEGIN AT needs a variable", "{"),
        (inside("{ ?s ?p ?o } BEGIN AT ?o"), "?o has a value already", "?o"),
        (inside("{ ?s ?p ?o } WITH DURATION ?d"), "elements have a timestamp here", "WITH"),
        (inside("?s ?p"), "expected a term or a variable", "}"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, reason: str, place: str) -> None:
    with pytest.raises(ContinuousSyntaxError, match=r"^line 1, column") as caught:
        parse(text)
    assert reason in str(caught.value)
    column = int(str(caught.value).split(":")[0].split()[-1])
    assert text[column - 1 :].startswith(place)


def test_reports_alone() -> None:
    with pytest.raises(ContinuousSyntaxError, match="column 14: expected a comma"):
        parse_report("window close once")


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = "{" * 500 + "?s ?p ?o" + "}" * 500
    with pytest.raises(UnsupportedContinuousQueryError):
        parse(query(where="{ WINDOW <w> " + deep + "}"))


@pytest.mark.parametrize(
    ("text", "semantics"),
    [
        (query(), RSPQL),
        ("REGISTER ISTREAM <o> AS SELECT *", RSPQL),
        ("REGISTER STREAM <o> AS SELECT * FROM NAMED WINDOW <w> ON <s> [RANGE 5s] {}", RSPQL),
        ("REGISTER STREAM <o> AS SELECT * FROM STREAM <s> [RANGE 5s STEP 5s] {}", CSPARQL),
        ("SELECT * { STREAM <s> [NOW] { ?s ?p ?o } }", None),
        ("SELECT 'unclosed", None),
    ],
)
def test_the_text_tells_the_language(text: str, semantics: str | None) -> None:
    assert semantics_of(text) == semantics
