"""Trees of joins and unions."""

from tpf_client.sparql.algebra import Join, Union, Values
from tpf_client.sparql.rewrite.visitor import combined, operands

ONE, TWO, THREE = (Values((), ((),) * number) for number in (1, 2, 3))


def test_trees_are_taken_apart_in_the_order_of_the_text() -> None:
    assert operands(Join(ONE, Join(TWO, THREE))) == [ONE, TWO, THREE]
    assert operands(Join(Join(ONE, TWO), THREE)) == [ONE, TWO, THREE]
    assert operands(Join(ONE, Union(TWO, THREE))) == [ONE, Union(TWO, THREE)]
    assert operands(Union(Union(ONE, TWO), THREE), Union) == [ONE, TWO, THREE]
    assert operands(ONE) == [ONE]


def test_a_tree_has_the_operands_that_it_was_made_of() -> None:
    assert combined([ONE, TWO, THREE]) == Join(Join(ONE, TWO), THREE)
    assert operands(combined([ONE, TWO, THREE], Union), Union) == [ONE, TWO, THREE]
    assert combined([ONE]) is ONE


def test_a_long_chain_needs_no_stack() -> None:
    assert len(operands(combined([ONE] * 5_000))) == 5_000
