"""The triples that DESCRIBE makes of solutions: looked up when they are emitted.

A description is what static data say then of a resource, as in `tpf_client.dataflow.build.
describe_builder`: the triples of which it is the subject, and, where their objects are blank nodes,
those of these, and so on. Kept as a part of the dataflow it would be a copy of all static data.
"""

from collections.abc import Iterable, Sequence

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable, is_blank_node, is_literal
from tpf_client.dataflow.changes import Schema, Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import Query, Row
from tpf_server.continuous.engine.plans.row_maker import EncodedTriples
from tpf_server.continuous.engine.static.dataset import Dataset

_PREDICATE, _OBJECT = Variable("?predicate"), Variable("?object")


class Describer:
    """Makes triples from solutions.

    Args:
        query: says what is described: IRIs, and the values of variables.
        schema: the variables of the solutions.
        dictionary: the terms.
        dataset: the static data as the query sees them.
        feeds: whether the triples are wanted as identifiers, too.
    """

    def __init__(
        self,
        query: Query,
        schema: Schema,
        dictionary: TermDictionary,
        dataset: Dataset,
        *,
        feeds: bool = False,
    ) -> None:
        self._given = query.described
        self._places = [schema.index(name) for name in query.variables if name in schema]
        self._dictionary = dictionary
        self._dataset = dataset
        self._feeds = feeds

    def made(
        self, solutions: Sequence[tuple[Solution, int]]
    ) -> tuple[tuple[Row, ...], EncodedTriples]:
        """The distinct triples that describe what some solutions name; see `RowMaker.made`."""
        texts = self._dictionary.texts
        named = dict.fromkeys(self._given if solutions else ())
        for solution, _ in solutions:
            named.update({texts[each]: None for at in self._places if (each := solution[at])})
        rows = tuple(dict.fromkeys(self._described(named)))
        if not self._feeds:
            return rows, None
        encode = self._dictionary.encode
        return rows, [(encode(s), encode(p), encode(o)) for s, p, o in rows]

    def _described(self, named: Iterable[Term]) -> Iterable[tuple[Term, Term, Term]]:
        waiting = [each for each in named if not is_literal(each)]
        seen = set(waiting)
        while waiting:
            pattern = QuadPattern(waiting.pop(), _PREDICATE, _OBJECT, DEFAULT_GRAPH)
            for quad in self._dataset.match(pattern):
                yield quad.subject, quad.predicate, quad.object
                if is_blank_node(quad.object) and quad.object not in seen:
                    seen.add(quad.object)
                    waiting.append(quad.object)
