"""Nodes of event streams as they are parsed."""

from annotations.terms import Term, Triple, triple_term
from loaders.sources.ldes import LdesNode, read_node

NODE = b"""
@prefix tree: <https://w3id.org/tree#> .
<urn:stream> tree:member <urn:a> .
<urn:a> <urn:said> <<( <urn:b> <urn:knows> _:c )>> ; <urn:by> _:c .
_:c <urn:name> "c" .
"""


def test_a_member_keeps_triple_terms_with_the_names_of_their_nodes() -> None:
    (member,) = read_node(NODE, "text/turtle", "http://example.org/node").members
    said = {quad.predicate: quad.object for quad in member.quads}
    node = said[Term("<urn:by>")]
    assert node == "<urn:a#genid-0>" or node == "<urn:a#genid-1>"
    expected = triple_term(Triple(Term("<urn:b>"), Term("<urn:knows>"), node))
    assert said[Term("<urn:said>")] == expected
    assert {quad.subject for quad in member.quads} == {"<urn:a>", node}


def test_a_node_may_be_empty() -> None:
    node = b"<> a <https://w3id.org/tree#Node> ."
    assert read_node(node, "text/turtle", "http://example.org/node") == LdesNode()
