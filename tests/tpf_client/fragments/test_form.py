"""The form of a dataset, expanded exactly as RFC 6570 says."""

import pytest

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable
from tpf_client.fragments.blank_nodes import askable, from_wire, to_wire
from tpf_client.fragments.form import Form

S, P, OBJECT, G = (Variable(f"?{name}") for name in "spog")
QPF = Form(
    "http://ex.org/d{?s,p,o,g}", "s", "p", "o", graph="g", default_graph="urn:ldf:defaultGraph"
)
TPF = Form("http://ex.org/d?fixed=1{&subject,predicate,object}", "subject", "predicate", "object")


@pytest.mark.parametrize(
    ("form", "pattern", "url"),
    [
        (QPF, QuadPattern(S, P, OBJECT, G), "http://ex.org/d"),
        (QPF, QuadPattern(S, P, OBJECT), "http://ex.org/d?g=urn%3Aldf%3AdefaultGraph"),
        (
            QPF,
            QuadPattern(Term("<http://a/ü>"), P, Term('"a\\"b\\n"@en'), Term("<urn:g>")),
            "http://ex.org/d?s=http%3A%2F%2Fa%2F%C3%BC&o=%22a%22b%0A%22%40en&g=urn%3Ag",
        ),
        (
            TPF,
            QuadPattern(S, P, Term('"4"^^<http://www.w3.org/2001/XMLSchema#integer>')),
            "http://ex.org/d?fixed=1&object="
            "%224%22%5E%5Ehttp%3A%2F%2Fwww.w3.org%2F2001%2FXMLSchema%23integer",
        ),
    ],
)
def test_url(form: Form, pattern: QuadPattern, url: str) -> None:
    assert form.url(pattern) == url


def test_skolem_iris_are_blank_nodes_and_go_out_again_as_what_they_were() -> None:
    wire = Term("<http://ex.org/.well-known/genid/d1/b0>")
    blank = from_wire(wire, "http://ex.org/d?page=1")
    assert blank.startswith("_:")
    assert from_wire(wire, "http://ex.org/d?page=2") == blank
    assert to_wire(blank) == wire
    assert askable(blank)
    assert QPF.url(QuadPattern(blank, P, OBJECT, G)) == (
        "http://ex.org/d?s=http%3A%2F%2Fex.org%2F.well-known%2Fgenid%2Fd1%2Fb0"
    )


def test_plain_blank_nodes_belong_to_their_page() -> None:
    one, other = (from_wire(Term("_:b0"), f"http://ex.org/d?page={n}") for n in (1, 2))
    assert one != other
    assert not askable(one)
    assert DEFAULT_GRAPH == ""
