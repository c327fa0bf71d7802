"""A page that is read again equals its first reading."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tpf_client.errors import PageError, ParseError
from tpf_client.fragments.page import LineMemo
from tpf_client.fragments.page_reader import PageReader, ReadPage

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
    """A page at several instants: words change, some lines come and go."""
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


def _read(body: bytes, before: LineMemo | None) -> ReadPage | str:
    try:
        return PageReader().read(body, "application/trig", URL, before=before)
    except (PageError, ParseError) as error:
        return str(error)


@examples(100)
@given(versions())
def test_a_page_says_the_same_as_when_it_is_read_for_the_first_time(bodies: list[bytes]) -> None:
    known: LineMemo | None = LineMemo()
    for body in bodies:
        first, again = _read(body, None), _read(body, known)
        if isinstance(first, str) or isinstance(again, str):
            assert first == again
            continue
        # A page is a set of facts, each with its label.
        assert set(again.facts) == set(first.facts)
        assert again.metadata == first.metadata
        assert again.warnings == first.warnings
        known = again.memo
