"""C-SPARQL queries recomputed from nothing at every instant by pyoxigraph.

At an instant the windows are cut out of all elements, the dataset is made in a fresh store, and an
ordinary SPARQL query is asked of it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import pyoxigraph as ox

from tests.support.judges import by_specification, difference_of
from tests.support.oracle import quad_of
from tpf_client.sparql.parser import parse_query

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
class Clocks:
    """The time of streams.

    Args:
        lateness: how far everything stays behind elements.
        patience: how far a stream may be behind another and be waited for.
        present: the time, where it is known.
        newest: the time of the newest element of each stream.
        told: everything up to this has come.
    """

    lateness: int = 0
    patience: int = 0
    present: int | None = None
    newest: dict[str, int] = field(default_factory=dict)
    told: int = -1

    def passed(self, streams: Collection[str], instant: int) -> bool:
        """True if a query over these streams need not wait any longer to answer for an instant."""
        instant += self.lateness
        if instant <= self.told:
            return True
        later = [self.newest.get(each, -1) - instant for each in streams]
        if all(each > 0 for each in later):
            return True
        if self.present is None:
            return max(later) > self.patience
        return max(later) > 0 and self.present > instant


@dataclass
class Reference:
    """The expected answers of a query.

    Args:
        sparql: the query as SPARQL 1.1 over the dataset of an instant.
        clauses: its streams.
        static: N-Quads: the repository.
        default: graphs of the repository that FROM names; empty: its default graph.
        repository: more static data.
        every: COMPUTED EVERY, in milliseconds.
    """

    sparql: str
    clauses: Sequence[Clause]
    static: str = ""
    default: Sequence[str] = ()
    repository: ox.Store | None = None
    every: int | None = None
    elements: list[tuple[str, int, Triple]] = field(default_factory=list)
    _store: ox.Store | None = None
    _static_part: list[ox.Quad] = field(default_factory=list)
    _passing: list[ox.Quad] = field(default_factory=list)

    def push(self, stream: str, at: int, triples: Iterable[Triple]) -> None:
        self.elements += [(stream, at, triple) for triple in triples]

    def restate(self, static: str) -> None:
        """Replace the static data."""
        self.static, self._store, self._passing = static, None, []

    @property
    def periods(self) -> list[int]:
        """Its evaluations are at multiples of these; without any, where windows of triples move."""
        if self.every is not None:
            return [self.every]
        return [clause.step for clause in self.clauses if not clause.triples]

    def instants(self, until: int) -> list[int]:
        """Return the multiples of the periods, from the first that is not before any element."""
        streams = {clause.stream for clause in self.clauses}
        first = min((at for stream, at, _ in self.elements if stream in streams), default=None)
        if first is None:
            return []
        return [
            at for at in range(first, until + 1) if any(at % period == 0 for period in self.periods)
        ]

    def window(self, clause: Clause, at: int) -> list[tuple[int, Triple]]:
        own = [(when, triple) for stream, when, triple in self.elements if stream == clause.stream]
        if clause.triples:
            # Those that are asked when triples come see whatever has come.
            seen = own if not self.periods else [each for each in own if each[0] <= at]
            return seen[-clause.triples :]
        end = at - at % clause.step
        return [(when, triple) for when, triple in own if end - clause.range < when <= end]

    def _background(self) -> list[ox.Quad]:
        """The static part of the default graph, and other static data."""
        if self._store is None:
            repository = self.repository or ox.Store()
            repository.load(self.static.encode(), format=ox.RdfFormat.N_QUADS)
            named: list[ox.NamedNode | ox.DefaultGraph] = [ox.NamedNode(n) for n in self.default]
            graphs = named or [ox.DefaultGraph()]
            self._static_part = [
                ox.Quad(quad.subject, quad.predicate, quad.object)
                for graph in graphs
                for quad in repository.quads_for_pattern(None, None, None, graph)
            ]
            self._store = ox.Store()
            self._store.extend(self._static_part)
            if not self.default:
                self._store.extend(
                    quad for quad in repository if isinstance(quad.graph_name, ox.NamedNode)
                )
            if "GRAPH" in self.sparql:
                self._store.extend(self._beside_streams())
        return self._static_part

    def _beside_streams(self) -> Iterable[ox.Quad]:
        """The static part of the graphs that are named by streams."""
        if not any(clause.named for clause in self.clauses):
            for clause in self.clauses:
                graph = ox.NamedNode(clause.stream)
                for quad in self._static_part:
                    yield ox.Quad(quad.subject, quad.predicate, quad.object, graph)

    def store(self, at: int) -> ox.Store:
        self._background()
        store = self._store
        assert store is not None
        for quad in self._passing:
            store.remove(quad)
        self._passing = []
        some_named = any(clause.named for clause in self.clauses)
        times: dict[Triple, int] = {}
        for clause in self.clauses:
            graph = ox.NamedNode(clause.stream)
            content = self.window(clause, at)
            lines = "".join(f"{' '.join(triple)} .\n" for _, triple in content).encode()
            for quad in ox.parse(lines, format=ox.RdfFormat.N_TRIPLES):
                if not clause.named:
                    self._add(quad)
                if clause.named or not some_named:
                    self._add(ox.Quad(quad.subject, quad.predicate, quad.object, graph))
            for when, triple in content:
                times[triple] = max(when, times.get(triple, when))
        if TIMES in self.sparql:
            for triple, when in times.items():
                number = f'"{when}"^^<http://www.w3.org/2001/XMLSchema#integer>'
                line = f"[] <{TIMES}:of> <<( {' '.join(triple)} )>> ; <{AT}> {number} ."
                for quad in ox.parse(line.encode(), format=ox.RdfFormat.TURTLE):
                    named = ox.NamedNode(TIMES)
                    self._add(ox.Quad(quad.subject, quad.predicate, quad.object, named))
        return store

    def _add(self, quad: ox.Quad) -> None:
        assert self._store is not None
        if quad not in self._store:
            self._store.add(quad)
            self._passing.append(quad)

    def said(self, at: int) -> str:
        """Return the query, with the instant for NOW()."""
        seconds = f"{at // 1000 % 60:02}.{at % 1000:03}".rstrip("0").removesuffix(".")
        time = f"1970-01-01T{at // 3_600_000:02}:{at // 60_000 % 60:02}:{seconds}Z"
        return self.sparql.replace(
            "NOW()", f'"{time}"^^<http://www.w3.org/2001/XMLSchema#dateTime>'
        )

    def answer(self, at: int) -> Solutions:
        """Return the solutions at an instant; an empty one where ASK is true; the triples of a
        graph.
        """
        found = self.store(at).query(self.said(at))
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

    def judged(self, at: int) -> Solutions:
        """Return the same, by the specification where pyoxigraph may differ from it."""
        if TIMES in self.sparql:
            # It asks for triple terms, in the syntax of SPARQL 1.2.
            return self.answer(at)
        text = self.said(at)
        query = parse_query(text)
        if difference_of(query, text) is None:
            return self.answer(at)
        found = by_specification(query, map(quad_of, self.store(at)))
        if isinstance(found, bool):
            return Counter({frozenset(): 1} if found else {})
        names = ("?s", "?p", "?o") if query.form == "CONSTRUCT" else query.variables
        return solutions(names, found.elements())


def solutions(variables: Sequence[str], rows: Iterable[Sequence[str | None]]) -> Solutions:
    """Convert rows to the form of `Reference.answer`."""
    return Counter(
        frozenset(
            (name, value) for name, value in zip(variables, row, strict=True) if value is not None
        )
        for row in rows
    )
