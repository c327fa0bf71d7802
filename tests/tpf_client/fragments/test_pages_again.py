"""A page that is read again says what it says when it is read for the first time."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_client.errors import PageError, ParseError
from tpf_client.fragments import page_description, parser
from tpf_client.fragments.known_lines import SaidLine
from tpf_client.fragments.page import KnownPage, Statements
from tpf_client.fragments.page_description import changed_statements
from tpf_client.fragments.parser import PageReader, ReadPage

URL = "http://ex.org/d?p=x"
DAY = '"2020-01-0{}T00:00:00Z"^^x:dateTime'
CHOICES = {
    "value": ("1", "2", "3", "é"),
    "other": ('"1"', '"2"', "<http://ex.org/o>", "_:o"),
    "graph": ("<http://ex.org/g>", "<http://ex.org/h>"),
    "subject": (":a", ":b", "_:b"),
    "end": (DAY.format(1), DAY.format(2), '"never"^^x:dateTime'),
    "start": (DAY.format(1), DAY.format(3)),
    "earliest": (DAY.format(1), DAY.format(2), '"never"^^x:dateTime'),
    "now": (DAY.format(1), DAY.format(2)),
    "change": ("evaluatedAt", "nextChange", "earliestExpiration"),
    "snapshot": ("1", "2"),
    "template": ("{?s,p,o}", "{?s,p,o,g}", "/{s}/{p}/{o}"),
    "method": ("plain", "reification"),
    "labelling": ("interval", "expiration"),
    "vocabulary": ("http://example.org/temporal#", "http://other.example/t#"),
    "topic": ("<http://ex.org/d?p=x>", "<http://ex.org/e>"),
    "count": ("1", "2"),
    "page": ("2", "3"),
}
LINES = (
    "@prefix : <http://ex.org/> .",
    "@prefix x: <http://www.w3.org/2001/XMLSchema#> .",
    "@prefix t: <{vocabulary}> .",
    "@prefix h: <http://www.w3.org/ns/hydra/core#> .",
    "@prefix r: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .",
    '<http://ex.org/a> <http://ex.org/delay> "{value}" .',
    '<http://ex.org/a> <http://ex.org/delay> "{value}","4" .',
    "<http://ex.org/b> <http://ex.org/delay> {other} .",
    "<http://ex.org/.well-known/genid/1> <http://ex.org/delay> {other} .",
    "{graph} {{",
    '_:b <http://ex.org/delay> "{value}" .',
    '_:b <http://xmlns.com/foaf/0.1/primaryTopic> "{value}" .',
    "}}",
    "<#m> {{",
    "_:l1 t:predicate :delay;t:subject {subject} .",
    "_:l1 t:expiration {end} .",
    "_:l2 t:predicate :delay;t:subject _:b;t:graph {graph} .",
    "_:l2 t:initial {start};t:final {end} .",
    '_:l3 t:predicate :delay;t:subject :a;t:object "1" .',
    "_:l3 t:instant {start} .",
    "}}",
    "<#m> {{",
    "<#m> <http://xmlns.com/foaf/0.1/primaryTopic> {topic} .",
    "<> h:search _:form .",
    '_:form h:template "http://ex.org/d{template}" .',
    '_:form h:mapping _:s,_:p,_:o .',
    '_:s h:variable "s";h:property r:subject .',
    '_:p h:variable "p";h:property r:predicate .',
    '_:o h:variable "o";h:property r:object .',
    '<> <http://rdfs.org/ns/void#vocabulary> <http://other.example/t#>;t:mapping _:x .',
    '<> t:annotationMethod "{method}";t:labelling "{labelling}" .',
    '<> <http://rdfs.org/ns/void#triples> "{count}"^^x:integer .',
    "<> h:next </d?p=x&page={page}> .",
    "<> h:first </d?p=x&page=1&snapshot={snapshot}>;h:last </d?p=x&page=9&snapshot={snapshot}> .",
    "<> t:earliestExpiration {earliest} .",
    "<> t:evaluatedAt {now};t:plainView </d/plain?p={page}> .",
    "<> t:{change} {earliest} .",
    "<http://ex.org/e> t:evaluatedAt {now} .",
    "}}",
)  # fmt: skip
FRAME = {"{graph} {{", "}}", "<#m> {{", *LINES[:5]}
OPTIONAL = tuple(each for each in LINES if each not in FRAME)


@st.composite
def versions(draw: st.DrawFn) -> list[bytes]:
    """A page at several instants: mostly words are others, sometimes lines come and go."""
    said = {name: draw(st.sampled_from(texts)) for name, texts in CHOICES.items()}
    gone = set(draw(st.lists(st.sampled_from(OPTIONAL), max_size=4)))
    if draw(st.booleans()):
        # Then no label is for one object alone.
        gone |= {each for each in LINES if "t:object" in each}
    found = []
    for _ in range(draw(st.integers(2, 5))):
        for name in draw(st.lists(st.sampled_from(list(CHOICES)), max_size=3)):
            said[name] = draw(st.sampled_from(CHOICES[name]))
        if draw(st.integers(0, 4)) == 0:
            gone ^= {draw(st.sampled_from(OPTIONAL))}
        found.append("\n".join(each.format(**said) for each in LINES if each not in gone).encode())
    return found


def _read(body: bytes, before: KnownPage | None) -> ReadPage | str:
    try:
        return PageReader().read(body, "application/trig", URL, before=before)
    except (PageError, ParseError) as error:
        return str(error)


@settings(max_examples=400)
@given(versions())
def test_a_page_says_the_same_as_when_it_is_read_for_the_first_time(bodies: list[bytes]) -> None:
    known: KnownPage | None = KnownPage()
    for body in bodies:
        first, again = _read(body, None), _read(body, known)
        if isinstance(first, str) or isinstance(again, str):
            assert first == again
            continue
        # A page is a set of facts, each with its label.
        assert set(again.facts) == set(first.facts)
        assert again.metadata == first.metadata
        assert again.warnings == first.warnings
        known = again.known


def test_what_lasts_is_not_made_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {name: texts[0] for name, texts in CHOICES.items()} | {"change": "nextChange"}
    known: KnownPage | None = KnownPage()
    made: list[str] = []

    def counted(*arguments: object) -> object:
        made.append("metadata")
        return page_description.metadata_of(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(parser, "metadata_of", counted)
    for number in range(4):
        said["value"] = str(number)
        said["now"] = said["end"] = said["earliest"] = DAY.format(number + 1)
        said["snapshot"] = str(number)
        body = "\n".join(each.format(**said) for each in LINES).encode()
        again = PageReader().read(body, "application/trig", URL, before=known)
        known = again.known
        assert again.metadata == PageReader().read(body, "application/trig", URL).metadata
    # That of the first one by its lines, and those that were read as a whole.
    assert len(made) == 1 + 4
    said["method"] = "reification"
    body = "\n".join(each.format(**said) for each in LINES).encode()
    again = PageReader().read(body, "application/trig", URL, before=known)
    assert again.metadata.method == "reification"
    assert len(made) == 1 + 4 + 1


def test_which_of_two_equal_objects_is_another_one_is_made_out() -> None:
    said = {name: texts[0] for name, texts in CHOICES.items()}
    first = "\n".join(each.format(**said) for each in LINES).encode()
    # The second of two lines that say when the page was made.
    second = "\n".join(
        each.format(**{**said, "earliest": DAY.format(2)}) for each in LINES
    ).encode()
    known = PageReader().read(first, "application/trig", URL, before=KnownPage()).known
    again = PageReader().read(second, "application/trig", URL, before=known)
    assert again.metadata == PageReader().read(second, "application/trig", URL).metadata


class _Object(str):
    """An object that notes how often one like it was compared with others."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _Object.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def _counted(known: KnownPage | None) -> KnownPage:
    """The same, so that comparisons of objects are counted, from none on."""
    assert known is not None
    assert known.description is not None
    statements: Statements = {
        name: {predicate: list(map(_Object, objects)) for predicate, objects in node.items()}
        for name, node in known.description.statements.items()
    }
    description = known.description._replace(statements=statements)
    _Object.compared = 0
    return dataclasses.replace(known, description=description)


def test_looking_for_other_objects_takes_as_long_as_the_page() -> None:
    many = 500
    for each in (10, many):
        bodies = [
            "\n".join(
                [
                    "<#m> {",
                    f"<#m> <http://xmlns.com/foaf/0.1/primaryTopic> <{URL}> .",
                    *(
                        f'_:l{n // each} <http://example.org/temporal#object> "{version}-{n}" .'
                        for n in range(many)
                    ),
                    "}",
                ]
            ).encode()
            for version in range(2)
        ]
        known = PageReader().read(bodies[0], "application/trig", URL, before=KnownPage()).known
        again = PageReader().read(bodies[1], "application/trig", URL, before=_counted(known))
        assert _Object.compared < 2 * 16 * many
        assert again.metadata == PageReader().read(bodies[1], "application/trig", URL).metadata


def test_what_does_not_pass_ends_the_search() -> None:
    topic, instant = Term("<urn:topic>"), Term("<urn:instant>")
    subject, old, new = Term("<urn:s>"), Term('"old"'), Term('"new"')
    lines = [
        tuple(SaidLine([Quad(subject, predicate, each, DEFAULT_GRAPH)], 0) for each in (old, new))
        for predicate in (instant, *[topic] * 9)
    ]
    changes = iter([(before, now) for before, now in lines])
    statements: Statements = {subject: {instant: [old], topic: [old]}}
    assert changed_statements(statements, changes, {instant}) is None
    assert len(list(changes)) == 8
    changed = changed_statements(statements, [(lines[0][0], lines[0][1])], {instant})
    assert changed == ({subject: {instant: [new], topic: [old]}}, {instant})
    assert statements == {subject: {instant: [old], topic: [old]}}


def test_one_label_of_many_subjects_is_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its end is another one, or what facts say."""
    many = 5000
    bodies = [
        "\n".join(
            [
                "@prefix x: <http://www.w3.org/2001/XMLSchema#> .",
                "@prefix t: <http://example.org/temporal#> .",
                *(f'<http://ex.org/s{n}> <http://ex.org/p> "{n * version}" .' for n in range(many)),
                "<#m> {",
                f"<#m> <http://xmlns.com/foaf/0.1/primaryTopic> <{URL}> .",
                f"_:l t:expiration {DAY.format(version)};t:predicate <http://ex.org/p>;t:subject "
                + ",".join(f"<http://ex.org/s{n}>" for n in range(many))
                + " .",
                "}",
            ]
        ).encode()
        for version in (1, 2)
    ]
    whole = PageReader().read(bodies[1], "application/trig", URL)
    known = PageReader().read(bodies[0], "application/trig", URL, before=KnownPage()).known
    monkeypatch.setattr(parser, "metadata_of", None)
    monkeypatch.setattr(parser, "owners_of", None)
    again = PageReader().read(bodies[1], "application/trig", URL, before=_counted(known))
    assert _Object.compared < many
    assert again.facts == whole.facts
    assert again.metadata == whole.metadata
