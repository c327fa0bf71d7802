"""RDF Messages in and out: logs of N-Quads, NDJSON-LD, and server-sent events."""

import json

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.event_reader import EventReader
from tests.support.continuous_site import Site
from tpf_server.continuous.runtime.elements.elements import Element, graph_of
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.continuous.service import rdf_messages
from tpf_server.continuous.service.rdf_messages import NDJSON_LD, read_messages

LOG = {"Content-Type": "application/n-quads; version=1.2-messages"}
COPY = "CONSTRUCT { ?a <urn:q> ?b } { STREAM <http://localhost/s> [RANGE 1ms] { ?a <urn:p> ?b } }"
_LINES = '"a\u2028b\u0085"'
"""Has what some take for the ends of lines."""
_VALUES = st.sampled_from(['"1"', '"MESSAGE"', '"a\\nMESSAGE\\n"', '"x"@en', "<urn:b>", _LINES])
_MESSAGES = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), _VALUES), max_size=3, unique=True), max_size=5
)
Messages = list[list[tuple[str, str]]]


def _graphs(messages: Messages) -> list[set[tuple[str, ...]]]:
    """The elements that messages are: an empty one is none."""
    return [{(f"<urn:{a}>", "<urn:p>", b) for a, b in each} for each in messages if each]


@given(_MESSAGES, st.booleans())
def test_what_a_log_says_is_read_back(messages: Messages, closed: bool) -> None:
    texts = ["".join(f"<urn:{a}> <urn:p> {b} .\n" for a, b in each) for each in messages]
    log = 'VERSION "1.2-messages"\n# a comment\n' + "MESSAGE # the next\n".join(texts)
    log += "MESSAGE\n" if closed else ""
    read = list(read_messages(log, "application/n-quads", 7))
    assert all(isinstance(each, Element) and each.at == 7 for each in read)
    assert [set(each.triples) for each in read if isinstance(each, Element)] == _graphs(messages)


@given(_MESSAGES)
def test_documents_have_the_context_before_them(messages: Messages) -> None:
    lines = ['{"@context": {"p": {"@id": "urn:none"}}}', '{"@context": {"@vocab": "urn:"}}']
    for each in messages:
        nodes = []
        for a, b in each:
            (quad,) = ox.parse(f"<urn:a> <urn:p> {b} .", ox.RdfFormat.N_TRIPLES)
            value: dict[str, str] = {"@id": "urn:b"}
            if isinstance(quad.object, ox.Literal):
                value = {"@value": quad.object.value}
                if quad.object.language:
                    value["@language"] = quad.object.language
            nodes.append({"@id": f"urn:{a}", "p": value})
        lines.append(json.dumps({"@graph": nodes} if nodes else {}))
    read = list(read_messages("\n".join(lines) + "\n", NDJSON_LD, 7))
    found = [(graph_of(e.triples), set(e.triples)) for e in read if isinstance(e, Element)]
    assert found == [(None, each) for each in _graphs(messages)]


def test_a_document_keeps_its_graphs_and_adds_its_own_context() -> None:
    text = """{"@context": [{"p": "urn:none", "q": "urn:q"}]}
{"@context": {"p": "urn:p"}, "@id": "urn:g", "@graph": [{"@id": "urn:a", "p": "1", "q": "2"}]}
{"@id": "urn:a", "q": "3"}"""
    one, other = (each for each in read_messages(text, NDJSON_LD, 7) if isinstance(each, Element))
    assert graph_of(one.triples) == "<urn:g>"
    assert set(one.triples) == {
        ("<urn:a>", "<urn:p>", '"1"'), ("<urn:a>", "<urn:q>", '"2"'),
    }  # fmt: skip
    assert (graph_of(other.triples), [*other.triples]) == (None, [("<urn:a>", "<urn:q>", '"3"')])


def test_the_contexts_of_all_messages_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdf_messages, "most_written", lambda _: 100)
    lines = ['{"@context": {"p": "urn:p"}}', *['{"@id": "urn:a", "p": "b"}'] * 7]
    *read, last = read_messages("\n".join(lines), NDJSON_LD, 1)
    assert [type(each) for each in read] == [Element] * 6
    assert isinstance(last, ElementError)
    assert last.line == 8


def test_what_is_malformed_is_refused_with_its_line() -> None:
    log = 'VERSION "1.2-messages"\n<urn:a> <urn:p> "1" .\nMESSAGE\n\n<urn:a> oh .\nMESSAGE\n'
    good, bad = read_messages(log, "application/n-triples", 7)
    assert isinstance(good, Element)
    assert str(bad).startswith("line 5: ")
    first, second = read_messages('oh\n[]\n{"@context": {}}\n', NDJSON_LD, 7)
    assert str(first).startswith("line 1: not JSON")
    assert str(second) == "line 2: a message is a JSON object"
    (deep,) = read_messages('{"a":' * 20_000 + "1" + "}" * 20_000, NDJSON_LD, 7)
    assert str(deep).startswith("line 1: not JSON that can be read")


def test_results_are_messages_that_a_stream_takes() -> None:
    site = Site()
    site.register(COPY, name="made")
    body = (
        'VERSION "1.2-messages"\n<urn:a> <urn:p> "1" .\n<urn:b> <urn:p> "2" .\nMESSAGE\n'
        f"<urn:a> <urn:p> {_LINES} .\n"
    )
    # Its version is in the media type or in its first line.
    for at, headers in enumerate((LOG, {"Content-Type": "application/n-quads"})):
        pushed = site.post(f"streams/s?timestamp={at}", body, headers)
        assert (pushed.json()["accepted"], pushed.json()["refused"]) == (2, [])
    now = {"follow": "false"}
    log = site.results("made", "application/n-quads", params=now)
    assert log.headers["Content-Type"] == "application/n-quads; version=1.2-messages"
    assert site.results("made", LOG["Content-Type"], params=now).content == log.content
    text = log.content.decode()
    said = [set(each.triples) for each in read_messages(text, "application/n-quads", 0)
            if isinstance(each, Element)]  # fmt: skip
    assert {("<urn:a>", "<urn:q>", _LINES)} in said
    documents = site.results("made", NDJSON_LD, params=now)
    assert [set(each.triples) for each in read_messages(documents.text, NDJSON_LD, 0)
            if isinstance(each, Element)] == said  # fmt: skip
    events = site.results("made", "text/event-stream", params=now | {"messages": "true"})
    texts = [event.data for event in EventReader(10_000).feed(events.content)]
    assert [{tuple(map(str, quad.triple)) for quad in ox.parse(text, ox.RdfFormat.N_QUADS)}
            for text in texts] == said  # fmt: skip
    kind = {"Content-Type": log.headers["Content-Type"]}
    again = site.post("streams/t", log.content, kind)
    assert again.json()["accepted"] == len(said)


def test_rows_are_no_messages() -> None:
    site = Site()
    site.register()
    assert site.results(accept="application/n-quads").status_code == 406
    refused = site.results(accept="text/event-stream", params={"messages": "true"})
    assert (refused.status_code, "only triples" in refused.text) == (400, True)
