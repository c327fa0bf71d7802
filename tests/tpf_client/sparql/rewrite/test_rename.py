"""Renamed variables and replaced expressions."""

from annotations.terms import Variable
from tpf_client.sparql.algebra import Call, Constant, Filter, VariableRef
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.visitor import everything, renamed, replaced

X, Y = Variable("?x"), Variable("?y")


def test_a_variable_is_renamed_wherever_it_stands() -> None:
    text = """SELECT {0} (MAX({0}) AS ?m) {{ {0} ?p ?o . {0} ?p+ ?q MINUS {{ ?s ?p {0} }}
        FILTER EXISTS {{ {0} ?p ?o FILTER({0} > 1) }} VALUES {0} {{ 1 UNDEF }} BIND({0} AS ?b) }}
        GROUP BY {0} ORDER BY DESC({0})"""
    text = text.replace("{0} ?p+", "{0} <urn:p>+")
    before, after = (parse_query(text.format(name)) for name in ("?x", "?z"))
    assert renamed(before.pattern, X, Variable("?z")) == after.pattern
    assert X not in set(everything(renamed(before, X, Variable("?z"))))
    assert renamed(after, X, Y) is after


def test_an_expression_takes_the_place_of_a_part() -> None:
    pattern = parse_query("SELECT * { ?x ?p ?o FILTER(IF(?x, ?x + 1, ?o)) }").pattern
    found = next(each for each in everything(pattern) if isinstance(each, Filter))
    one = next(each for each in everything(found.condition) if isinstance(each, Constant))
    after = replaced(found.condition, {VariableRef(X): one})
    assert isinstance(after, Call)
    assert after.arguments[0] == one
    assert X not in set(everything(after))
