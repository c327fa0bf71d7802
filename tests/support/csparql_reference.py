"""The meaning of a C-SPARQL query, recomputed from nothing at every instant by pyoxigraph.

The elements of each stream are kept for ever. At an instant the windows are cut out of them, the
dataset of the query is made in a fresh store, and an ordinary SPARQL query is asked of it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyoxigraph as ox

Triple = tuple[str, str, str]
Solutions = Counter[frozenset[tuple[str, str]]]
TIMES = "urn:reference:times"
AT = "urn:reference:at"


@dataclass(frozen=True)
class Clause:
    """A FROM STREAM clause: a range and a step in milliseconds, or a number of triples."""

    stream: str
    range: int = 0
    step: int = 1
    triples: int = 0
    named: bool = False

    def __str__(self) -> str:
        named = "NAMED " if self.named else ""
        window = (
            f"TRIPLES {self.triples} STEP {self.step}"
            if self.triples
            else f"{self.range}ms STEP {self.step}ms"
        )
        return f"FROM {named}STREAM <{self.stream}> [RANGE {window}]"


@dataclass
class Reference:
    """What a query must answer.

    Args:
        sparql: the query as SPARQL 1.1 over the dataset of an instant.
        clauses: its streams.
        static: N-Quads: the repository.
        default: graphs of the repository that FROM names; empty: its default graph.
    """

    sparql: str
    clauses: Sequence[Clause]
    static: str = ""
    default: Sequence[str] = ()
    elements: list[tuple[str, int, Triple]] = field(default_factory=list)

    def push(self, stream: str, at: int, triples: Iterable[Triple]) -> None:
        self.elements += [(stream, at, triple) for triple in triples]

    def instants(self, until: int) -> list[int]:
        """The multiples of the steps, from the first that is not before any element."""
        streams = {clause.stream for clause in self.clauses}
        first = min((at for stream, at, _ in self.elements if stream in streams), default=None)
        if first is None:
            return []
        return [
            at
            for at in range(first, until + 1)
            if any(at % clause.step == 0 for clause in self.clauses)
        ]

    def window(self, clause: Clause, at: int) -> list[tuple[int, Triple]]:
        own = [(when, triple) for stream, when, triple in self.elements if stream == clause.stream]
        if clause.triples:
            return [each for each in own if each[0] <= at][-clause.triples :]
        end = at - at % clause.step
        return [(when, triple) for when, triple in own if end - clause.range < when <= end]

    def store(self, at: int) -> ox.Store:
        store = ox.Store()
        repository = ox.Store()
        repository.load(self.static.encode(), format=ox.RdfFormat.N_QUADS)
        graphs = [ox.NamedNode(name) for name in self.default] or [ox.DefaultGraph()]
        background = [
            quad
            for graph in graphs
            for quad in repository.quads_for_pattern(None, None, None, graph)
        ]
        for quad in background:
            store.add(ox.Quad(quad.subject, quad.predicate, quad.object))
        if not self.default:
            store.extend(quad for quad in repository if isinstance(quad.graph_name, ox.NamedNode))
        some_named = any(clause.named for clause in self.clauses)
        times: dict[Triple, int] = {}
        for clause in self.clauses:
            graph = ox.NamedNode(clause.stream)
            content = self.window(clause, at)
            lines = "".join(f"{' '.join(triple)} .\n" for _, triple in content).encode()
            if not clause.named:
                store.load(lines, format=ox.RdfFormat.N_TRIPLES)
                if not some_named:
                    for quad in background:
                        store.add(ox.Quad(quad.subject, quad.predicate, quad.object, graph))
            if clause.named or not some_named:
                store.load(lines, format=ox.RdfFormat.N_TRIPLES, to_graph=graph)
            for when, triple in content:
                times[triple] = max(when, times.get(triple, when))
        if TIMES in self.sparql:
            for triple, when in times.items():
                number = f'"{when}"^^<http://www.w3.org/2001/XMLSchema#integer>'
                line = f"_:r <{TIMES}:of> <<( {' '.join(triple)} )>> ; <{AT}> {number} ."
                store.load(line.encode(), format=ox.RdfFormat.TURTLE, to_graph=ox.NamedNode(TIMES))
        return store

    def answer(self, at: int) -> Solutions:
        """The solutions at an instant; an empty one where ASK says yes; the triples of a graph."""
        found = self.store(at).query(self.sparql)
        if isinstance(found, ox.QueryBoolean):
            return Counter({frozenset(): 1} if found else {})
        if isinstance(found, ox.QueryTriples):
            return Counter(
                {
                    frozenset(
                        {("?s", str(t.subject)), ("?p", str(t.predicate)), ("?o", str(t.object))}
                    )
                    for t in found
                }
            )
        assert isinstance(found, ox.QuerySolutions)
        names = found.variables
        return Counter(
            frozenset((str(name), str(row[name])) for name in names if row[name] is not None)
            for row in found
        )


def solutions(variables: Sequence[str], rows: Iterable[Sequence[str | None]]) -> Solutions:
    """Rows as what `Reference.answer` gives."""
    return Counter(
        frozenset(
            (name, value) for name, value in zip(variables, row, strict=True) if value is not None
        )
        for row in rows
    )
