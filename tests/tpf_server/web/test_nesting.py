"""Bodies and terms that nest without end, or that grow when they are read, are refused."""

from urllib.parse import quote

import pytest

from annotations.terms import MAX_NESTING
from tests.support.served import Served

UNTIL = "expiration=2999-01-01T00:00:00Z"
RDF = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:a="a:"'
GROWING = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))


def triple_term(depth: int) -> str:
    return "<<( <a:s> <a:p> " * depth + "<a:o>" + " )>>" * depth


def turtle(depth: int) -> str:
    return f"<a:x> <a:says> {triple_term(depth)} ."


def json_ld(depth: int) -> str:
    # One more for the document itself.
    return '{"a:p":' * depth + '"x"' + "}" * depth


def rdf_xml(depth: int) -> str:
    nodes = (depth - 1) // 2
    inside = "<a:x><a:p>" * nodes + "</a:p></a:x>" * nodes
    return f"<rdf:RDF {RDF}>{inside}</rdf:RDF>"


@pytest.mark.parametrize("depth", [MAX_NESTING + 2, 20_000])
@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (turtle, "text/turtle"),
        (turtle, "application/n-quads"),
        (lambda depth: "# it's\n" + turtle(depth), "application/trig"),
        (lambda depth: turtle(depth).replace("<a:p> <<", "<a:p> #)>>\n<<"), "text/turtle"),
        (json_ld, "application/ld+json"),
        (rdf_xml, "application/rdf+xml"),
    ],
)
def test_a_body_that_is_nested_too_deep_is_400(
    served: Served, body: object, media_type: str, depth: int
) -> None:
    assert callable(body)
    response = served.post(body(depth), UNTIL, media_type)
    assert response.status_code == 400
    assert f"nested more than {MAX_NESTING} deep" in response.json()["detail"]
    assert served.get("trains").status_code == 200


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (turtle(MAX_NESTING), "text/turtle"),
        # None is inside another one; what stands in texts, names and comments does not count.
        ("".join(f"<a:x> <a:p{n}> {triple_term(1)} .\n" for n in range(300)), "text/turtle"),
        (f'<a:x> <a:p> "{"<<( " * 300}" .', "text/turtle"),
        (f'<a:x> <a:p> """{"<<( " * 300}"\n"""  .', "text/turtle"),
        (f"<a:x> <a:p> '{'<<( ' * 300}' . # {'<<( ' * 300}", "text/turtle"),
        (json_ld(MAX_NESTING - 1), "application/ld+json"),
        ('{"@id":"a:x","a:p":"' + "[" * 300 + '\\""}', "application/ld+json"),
        (rdf_xml(MAX_NESTING - 1), "application/rdf+xml"),
    ],
)
def test_a_body_that_is_not_is_taken(served: Served, body: str, media_type: str) -> None:
    response = served.post(body, UNTIL, media_type)
    assert response.status_code == 201, response.text


@pytest.mark.parametrize("entities", ['<!ENTITY e0 "lol">', f'<!ENTITY e0 "lol">{GROWING}'])
def test_entities_of_xml_are_not_read(served: Served, entities: str) -> None:
    body = (
        f'<?xml version="1.0"?>\n<!DOCTYPE rdf:RDF [{entities}]>\n<rdf:RDF {RDF}>'
        '<rdf:Description rdf:about="a:s"><a:p>&e0;</a:p></rdf:Description></rdf:RDF>'
    )
    response = served.post(body, UNTIL, "application/rdf+xml")
    assert response.status_code == 400
    assert response.json()["detail"] == "line 2: entities are not read; write IRIs out"


@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 1_000])
@pytest.mark.parametrize("form", ["<<( <a:s> <a:p> {} )>>", "<<a:s a:p {}>>"])
def test_a_term_that_is_nested_too_deep_is_400(served: Served, form: str, depth: int) -> None:
    opening, closing = form.split("{}")

    def ask(depth: int) -> str:
        text = opening * depth + "<a:o>" + closing * depth
        return f"trains?object={quote(text, safe='')}"

    response = served.get(ask(depth))
    assert response.status_code == 400
    assert f"nested more than {MAX_NESTING} deep" in response.json()["detail"]
    assert served.page(ask(MAX_NESTING)).total == 0
