"""The order of joins, and the work to find it."""

from collections.abc import Sequence

from annotations.terms import QuadPattern
from tests.support.memory_leaves import CountedLookups
from tpf_client.dataflow.build.join_order import JoinOrder
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow
from tpf_client.sparql.algebra import Join, Project, walk
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.visitor import operands


class Counting(CountedLookups):
    """Leaves that count requests for their counts."""

    def __init__(self) -> None:
        super().__init__(Dataflow(TermDictionary()))
        self.asked = 0

    def expected(self, patterns: Sequence[QuadPattern]) -> float:
        self.asked += 1
        return 1


def test_each_operand_is_counted_once_however_many_there_are() -> None:
    parts = " ".join(f"{{ SELECT DISTINCT ?o{n} {{ <a:a> <a:p> ?o{n} }} }}" for n in range(100))
    query = parse_query(f"SELECT * {{ {parts} }}")
    assert isinstance(query.pattern, Project)
    leaves = Counting()
    assert len(JoinOrder(leaves).of(operands(query.pattern.input), None)) == 100
    assert leaves.asked == 100


def test_each_level_is_counted_once_however_deep() -> None:
    inner, depth = "{ <a:a> <a:p> ?o0 } UNION { <a:b> <a:p> ?o0 }", 60
    for level in range(1, depth):
        inner = (
            f"{{ {{ <a:a> <a:p> ?o{level} }} UNION {{ {inner} ?o{level - 1} <a:q> ?o{level} }} }}"
        )
    query = parse_query(f"SELECT * {{ {inner} }}")
    leaves = Counting()
    order = JoinOrder(leaves)
    joins = [each for each in walk(query.pattern) if isinstance(each, Join)]
    assert len(joins) == depth - 1
    for each in joins:
        order.of(operands(each), None)
        order.foreseen(each)
    # Each of its patterns, and once more where it is taken out of a join.
    assert leaves.asked <= 4 * depth
