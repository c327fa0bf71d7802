"""The leaves of a query: joins of triple patterns, each matched in its graph."""

from collections.abc import Callable, Mapping, Sequence

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import TermId
from tpf_client.dataflow.hash_join import HashJoin
from tpf_client.dataflow.node import Dataflow, Input, Node
from tpf_client.dataflow.project import Project
from tpf_client.sparql.algebra import variables_of_bgp
from tpf_server.cqels.dictionary import InliningDictionary, inline_integer
from tpf_server.cqels.static_data import Dataset, StaticData
from tpf_server.csparql.native.contents import EncodedTriple, PatternInput, WindowView
from tpf_server.csparql.operator_graph import OperatorGraph

_WINDOW_ESTIMATE = 100
"""How many triples a window is taken to hold that match a pattern."""


class CsparqlLeaves:
    """Makes the leaves of one query.

    Args:
        graph: the query.
        windows: the windows of its streams.
        static: the static data.
        flow: takes in the nodes.
        dictionary: the integers of terms.

    Attributes:
        predicates: of the triples that may match a pattern at all; ``None``: any.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        windows: Mapping[Term, WindowView],
        static: StaticData,
        flow: Dataflow,
        dictionary: InliningDictionary,
    ) -> None:
        self._graph = graph
        self._windows = windows
        self._static = static
        self._flow = flow
        self._dictionary = dictionary
        self._inputs: list[tuple[QuadPattern, tuple[Term, ...], PatternInput]] = []
        self.predicates: set[TermId] | None = set()

    def refresh(self, name: Term | None = None) -> None:
        """Read the static data (again): all graphs, or those patterns that see the graph `name`."""
        encode = self._dictionary.encode
        for pattern, graphs, entry in self._inputs:
            if graphs and (name is None or name in graphs):
                dataset = Dataset(self._static, graphs)
                entry.set_static(
                    (encode(quad.subject), encode(quad.predicate), encode(quad.object))
                    for quad in dataset.match(pattern._replace(graph=DEFAULT_GRAPH))
                )

    def has_static(self, pattern: QuadPattern, graphs: tuple[Term, ...]) -> bool:
        """See `Knowledge.has_static`."""
        return has_static(self._static, pattern, graphs)

    def bgp(self, patterns: Sequence[QuadPattern], seed: Node | None) -> Node:  # noqa: ARG002
        """A node of the solutions of these patterns (see `tpf_client.dataflow.node.Leaves`).

        A seed is not used: everything is in memory, and a join follows.
        """
        rest = list(dict.fromkeys(patterns))
        estimates = {each: self._estimate(each) for each in rest}
        node: Node | None = None
        while rest:
            known = set() if node is None else set(node.schema)
            connected = [each for each in rest if known & set(variables_of_bgp((each,)))]
            best = min(connected or rest, key=estimates.__getitem__)
            rest.remove(best)
            leaf = self._leaf(best)
            node = leaf if node is None else self._flow.add(HashJoin(node, leaf))
        assert node is not None
        wanted = variables_of_bgp(tuple(patterns))
        return node if node.schema == wanted else self._flow.add(Project(node, wanted))

    def _estimate(self, pattern: QuadPattern) -> int:
        source = self._graph.source_of(pattern)
        count = 0
        if source.static:
            plain = pattern._replace(graph=DEFAULT_GRAPH)
            count = Dataset(self._static, source.static).count(plain)
        if self._graph.part_of(pattern) != "static":
            free = sum(is_variable(term) for term in pattern[:3])
            count += _WINDOW_ESTIMATE * free
        return count

    def _leaf(self, pattern: QuadPattern) -> Node:
        source = self._graph.source_of(pattern)
        schema = variables_of_bgp((pattern,))
        stamped: list[WindowView] | None = None
        certain = frozenset(schema)
        if is_variable(pattern.graph):
            stamp = self._graph.stamps[Variable(pattern.graph)]
            stamped = [self._windows[stream] for stream in stamp.streams]
            certain -= {Variable(pattern.graph)}
        leaf = self._flow.add(Input(schema, certain, monotone=False))
        carrying = self._graph.part_of(pattern) != "static"
        windows = [self._windows[stream] for stream in source.streams] if carrying else []
        entry = PatternInput(self._row_of(pattern), windows, stamped, _encode_stamp, leaf.push)
        self._inputs.append((pattern, source.static, entry))
        if windows and self.predicates is not None:
            if is_variable(pattern.predicate):
                self.predicates = None
            else:
                self.predicates.add(self._dictionary.encode(Term(pattern.predicate)))
        return leaf

    def _row_of(self, pattern: QuadPattern) -> Callable[[EncodedTriple], tuple[int, ...] | None]:
        """A function from triples to rows of the pattern's variables, the timestamp left out."""
        places: dict[str, int] = {}
        same: list[tuple[int, int]] = []
        constants: list[tuple[int, int]] = []
        for place, term in enumerate(pattern[:3]):
            if not is_variable(term):
                constants.append((place, self._dictionary.encode(Term(term))))
            elif term in places:
                same.append((places[term], place))
            else:
                places[term] = place
        wanted = tuple(places.values())

        def row(triple: EncodedTriple) -> tuple[int, ...] | None:
            for place, constant in constants:
                if triple[place] != constant:
                    return None
            for one, other in same:
                if triple[one] != triple[other]:
                    return None
            return tuple([triple[place] for place in wanted])

        return row


def has_static(static: StaticData, pattern: QuadPattern, graphs: tuple[Term, ...]) -> bool:
    """Whether a triple of these static graphs matches a pattern."""
    dataset = Dataset(static, graphs)
    return next(dataset.match(pattern._replace(graph=DEFAULT_GRAPH)), None) is not None


def _encode_stamp(at: int) -> int:
    encoded = inline_integer(at)
    assert encoded is not None
    return encoded
