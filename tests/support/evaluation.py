"""Queries over quads in memory, once and under changes."""

from collections.abc import Iterable

from annotations.terms import Quad, Term
from tests.support.memory_leaves import LookupLeaves, ScanningLeaves
from tpf_client.dataflow.build.builder import build_query
from tpf_client.dataflow.build.construction import ServiceAccess
from tpf_client.dataflow.changes import UNBOUND, Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow, Node, NodeT
from tpf_client.dataflow.operators.service import at_once
from tpf_client.sparql.algebra import Query
from tpf_client.sparql.expressions.dates import DateTime, read_date_time
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.parser import parse_query

_NOW = read_date_time("2026-01-01T00:00:00Z")
assert isinstance(_NOW, DateTime)
NOW: DateTime = _NOW

Row = tuple[Term | None, ...]
Kind = type[ScanningLeaves] | type[LookupLeaves]


class CheckedDataflow(Dataflow):
    """A dataflow that checks that nodes bind their certain variables in every solution."""

    def add(self, node: NodeT) -> NodeT:
        """Add a node, and watch its output."""
        super().add(node)
        places = [node.schema.index(name) for name in node.certain]

        def check(solution: Solution, _count: int) -> None:
            assert all(solution[place] != UNBOUND for place in places), (node, solution)

        if not node.keyed and type(node).connect is Node.connect:
            node.connect(check)
        return node


class Evaluation:
    """A query that is kept up to date over changing quads."""

    def __init__(
        self,
        query: str | Query,
        kind: Kind = LookupLeaves,
        base: str | None = None,
    ) -> None:
        self.query = parse_query(query, base) if isinstance(query, str) else query
        self.flow = CheckedDataflow(TermDictionary())
        self.leaves = kind(self.flow)
        environment = Environment(TypedTerms(self.flow.dictionary), NOW)
        defer = self.leaves.defer if isinstance(self.leaves, LookupLeaves) else at_once
        services = ServiceAccess(defer=defer)
        self.output = build_query(
            self.query, self.leaves, self.flow, environment, services=services
        )
        self.variables = self.output.variables

    def change(self, added: Iterable[Quad] = (), removed: Iterable[Quad] = ()) -> None:
        """One tick."""
        self.leaves.change(removed, -1)
        self.leaves.change(added, 1)
        if isinstance(self.leaves, LookupLeaves):
            self.leaves.settle()
        self.flow.flush()

    def rows(self) -> list[Row]:
        """The present result."""
        decode = self.flow.dictionary.decode
        return [tuple(decode(i) if i else None for i in row) for row in self.output.rows()]


def evaluate(
    query: str | Query,
    quads: Iterable[Quad],
    kind: type[ScanningLeaves] | type[LookupLeaves] = LookupLeaves,
    base: str | None = None,
) -> Evaluation:
    """A query evaluated once."""
    evaluation = Evaluation(query, kind, base)
    evaluation.change(quads)
    return evaluation
