"""CQELS-QL: what parses, to what, and where errors point."""

import pytest

from tests.support.continuous_reference import window_of
from tpf_server.continuous.languages.cqels.parser import parse
from tpf_server.continuous.runtime.errors import (
    ContinuousSyntaxError,
)
from tpf_server.continuous.runtime.windows.specification import All, Now, Range, Triples


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("NOW", Now()),
        ("all", All()),
        ("Range 3s", Range(3000)),
        ("RANGE 1h 30m", Range(5_400_000)),
        ("RANGE 1h30m ", Range(5_400_000)),
        ("range 20s slide 1s", Range(20_000, 1000)),
        ("TRIPLES 1", Triples(1)),
    ],
)
def test_windows(text, window):
    assert window_of(text) == window
    assert window_of(str(window)) == window


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", 0),
        ("SOON", 0),
        ("RANGE", 5),
        ("RANGE 3", 7),
        ("RANGE 3x", 7),
        ("RANGE s", 6),
        ("TRIPLES 0", 8),
        ("TRIPLES many", 8),
        ("NOW NOW", 4),
        ("RANGE 3s SLIDE 0s", 15),
        (f"RANGE {'9' * 5000}s", 6),
        (f"RANGE 1h{'9' * 5000}s", 7),
        ("RANGE 1h30", 7),
        (f"TRIPLES {'9' * 5000}", 8),
    ],
)
def test_what_is_no_window(text, offset):
    with pytest.raises(ContinuousSyntaxError) as caught:
        window_of(text)
    assert caught.value.column == len("SELECT * { STREAM <urn:s> [") + offset + 1


def test_the_window_may_stand_before_the_stream():
    one = parse("SELECT * { STREAM <urn:s> [NOW] { ?a ?b ?c } }")
    other = parse("SELECT * { stream [now] <urn:s> { ?a ?b ?c } }")
    assert one.windows == other.windows
    assert one.query == other.query


def test_relative_names_are_resolved():
    query = parse("SELECT * FROM NAMED <events> { STREAM <Taxi> [ALL] { ?a ?b ?c } }")
    assert query.windows[0].stream == "<http://localhost/Taxi>"
    assert query.query.dataset.named == ("<http://localhost/events>",)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("SELECT * {\n STREAM <urn:s> [RANGE 3 parsecs] { ?a ?b ?c } }", 2, 26),
        ("SELECT * {\n STREAM <urn:s> { ?a ?b ?c } }", 2, 17),
        ("SELECT * {\n STREAM <urn:s> [NOW { ?a ?b ?c } }", 2, 22),
        ("SELECT * {\n STREAM 3 [NOW] { ?a ?b ?c } }", 2, 9),
        ("SELECT * {\n STREAM <urn:s> [NOW] ?a ?b ?c }", 2, 23),
        ("SELECT * {\n\t?a ?b }", 2, 8),
        ("SELECT * { STREAM <urn:s> [NOW] { ?a u:b ?c } }", 1, 38),
        ("SELECT * {\n STREAM <urn:s> [NOW] { GRAPH ?g { ?a ?b ?c } } }", 2, 25),
        ("SELECT * {\n STREAM <urn:s> [NOW] { STREAM <urn:t> [NOW] { ?a ?b ?c } } }", 2, 25),
        ("SELECT COUNT(?a AS ?n { STREAM <urn:s> [NOW] { ?a ?b ?c } }", 1, 8),
    ],
)
def test_errors_point_at_the_place(text, line, column):
    with pytest.raises(ContinuousSyntaxError) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column) == (line, column)
    source, caret = error.pointed.split("\n")
    assert source == text.split("\n")[line - 1]
    assert len(caret) == column
    assert caret[-1] == "^"
