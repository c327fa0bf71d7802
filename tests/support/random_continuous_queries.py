"""Random continuous queries of both languages over two streams, and random elements."""

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.support.csparql_reference import Clause
from tpf_server.continuous.continuous_engine import Engine, EngineSettings

XSD = "http://www.w3.org/2001/XMLSchema#"
NODES = tuple(f"<urn:n{number}>" for number in range(4))
NUMBERS = tuple(f'"{number}"^^<{XSD}integer>' for number in (0, 1, 2, 10))
STATIC = """
<urn:n0> <urn:near> <urn:n1> .
<urn:n1> <urn:near> <urn:n2> .
<urn:n2> <urn:near> <urn:n0> .
<urn:n0> <urn:near> <urn:n2> .
<urn:n1> <urn:kind> <urn:k1> .
<urn:n2> <urn:kind> <urn:k1> .
<urn:n0> <urn:in> <urn:n3> <urn:g1> .
<urn:n1> <urn:in> <urn:n3> <urn:g2> .
"""
STREAMS = ("<urn:s1>", "<urn:s2>")
VARIABLES = ("?a", "?b", "?c", "?d")
CONDITIONS = (
    "{0} = {1}", "{0} != {1}", "{0} < {1}", "ISIRI({0}) || {1} > 1", "BOUND({0}) && !BOUND({1})",
    "STR({0}) < STR({1})", "COALESCE({0}, 1) != COALESCE({1}, 2)",
)  # fmt: skip
COMPUTED = (
    "1/0", "{0} / 0", "IF(ISIRI({0}), {0}, 1/0)", "IF({0} = <urn:n0>, {0}, 1/0)", "?none",
    "COALESCE(1/0, {0})", "<urn:n1>", "STR({0})",
)  # fmt: skip

RANDOM = st.integers(0, 2**32).map(Random)

Triple = tuple[str, str, str]


def with_static(engine: Engine, quads: str = STATIC) -> Engine:
    """Add N-Quads to an engine, and return it."""
    for line in quads.strip().splitlines():
        *terms, _ = line.split()
        engine.add([terms[:3]], terms[3] if len(terms) > 3 else None)
    return engine


def loaded(**options: Any) -> Engine:
    """Return an engine with these settings and the static data."""
    return with_static(Engine(EngineSettings(**options)))


class QueryWriter:
    """Writes queries of everything that SPARQL has over windows and static data."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._choose = random.choice
        self._names = 0
        self._in_exists = 0

    def query(self, depth: int = 3) -> str:
        """Return a query, with an order only where a limit needs one."""
        body = self._group(depth)
        match self._random.randrange(10):
            case 0:
                return f"SELECT DISTINCT ?a ?b WHERE {{ {body} }}"
            case 1 | 2:
                return (
                    "SELECT ?a (COUNT(?b) AS ?k) (MIN(?c) AS ?l) (SUM(?d) AS ?m)"
                    f" WHERE {{ {body} }} GROUP BY ?a HAVING (COUNT(*) > {self._choose([0, 1])})"
                )
            case 3 | 4:
                order = "?a ?b DESC(?c) ?d"
                limit = self._choose([1, 2, 3])
                return f"SELECT ?a ?b ?c ?d WHERE {{ {body} }} ORDER BY {order} LIMIT {limit}"
            case _:
                return f"SELECT ?a ?b ?c ?d WHERE {{ {body} }}"

    def group(self, depth: int = 3) -> str:
        """Return the inside of WHERE."""
        return self._group(depth)

    def window(self) -> str:
        """Return the inside of window brackets."""
        width, slide = self._random.randint(0, 6), self._random.randint(1, 4)
        return self._choose(
            ["NOW", "ALL", f"RANGE {width}ms", f"RANGE {width}ms SLIDE {slide}ms",
             f"TRIPLES {slide}"]
        )  # fmt: skip

    def _triple(self) -> str:
        predicate = self._choose(["<urn:p>", "<urn:p>", "<urn:q>", "<urn:v>"])
        subject = self._choose([*VARIABLES, *NODES[:2]])
        constants = NUMBERS if predicate == "<urn:v>" else NODES
        object_ = self._choose(VARIABLES if self._random.random() < 0.8 else constants)
        return f"{subject} {predicate} {object_}"

    def _stream(self) -> str:
        return f"STREAM {self._choose(STREAMS)} [{self.window()}] {{ {self._block()} }}"

    def _block(self) -> str:
        """Return a stream clause."""
        triples = dict.fromkeys(self._triple() for _ in range(self._choose([1, 1, 2])))
        body = " . ".join(triples)
        while self._random.random() < 0.3:
            body = f"{body} {self._inside()}"
        return body

    def _inside(self) -> str:
        """Return the inside of a STREAM clause beside triples."""
        one, other = self._choose(VARIABLES), self._choose(VARIABLES)
        self._names += 1
        match self._random.randrange(8):
            case 0 | 1:
                return f"OPTIONAL {{ {self._triple()} }}"
            case 2 | 3:
                return f"{{ {self._triple()} }} UNION {{ {self._triple()} }}"
            case 4:
                return f"BIND (STR({one}) AS ?n{self._names})"
            case 5:
                return f"VALUES {one} {{ {' '.join(self._random.sample(NODES, 2))} }}"
            case 6:
                return f"FILTER ({self._choose(CONDITIONS).format(one, other)})"
            case _:
                return f"MINUS {{ {self._triple()} }}"

    def _static(self) -> str:
        one, other = self._choose([*VARIABLES, *NODES[:2]]), self._choose(VARIABLES)
        return self._choose(
            [f"{one} <urn:near> {other} .", f"{one} <urn:kind> {other} .",
             f"{one} <urn:near>+ {other} .", f"GRAPH <urn:g1> {{ {one} <urn:in> {other} }}"]
        )  # fmt: skip

    def _group(self, depth: int) -> str:
        first = self._stream() if self._random.random() < 0.7 else self._static()
        parts = [first, *(self._element(depth - 1) for _ in range(self._choose([0, 1, 2])))]
        if self._random.random() < 0.1:
            # What is computed, or an error, is a key of what follows.
            parts.insert(0, self._computed("BIND ({} AS {})"))
        return " ".join(parts)

    def _computed(self, how: str, inner: str = "") -> str:
        """Return a computed variable that is not mentioned inside."""
        value = self._choose(COMPUTED).format(self._choose(VARIABLES))
        self._names += 1
        free = [name for name in VARIABLES if name not in f"{inner} {value}"]
        if self._in_exists:
            # What has a value outside must not be computed anew.
            free = []
        return how.format(value, self._choose([*free, f"?n{self._names}"]))

    def _element(self, depth: int) -> str:
        if depth <= 0:
            return self._stream()
        one, other = self._choose(VARIABLES), self._choose(VARIABLES)
        self._names += 1
        name = f"?n{self._names}"
        match self._random.randrange(14):
            case 0 | 1:
                return self._stream()
            case 2:
                return self._static()
            case 12:
                inner = self._group(depth - 1)
                return f"{{ {inner} {self._computed('BIND ({} AS {})', inner)} }}"
            case 13:
                inner = self._group(depth - 1)
                made = self._computed(self._choose(["({} AS {})", "(MAX({}) AS {})"]), inner)
                return f"{{ SELECT {made} {{ {inner} }} }}"
            case 3:
                return f"OPTIONAL {{ {self._group(depth - 1)} }}"
            case 4:
                return f"{{ {self._group(depth - 1)} }} UNION {{ {self._group(depth - 1)} }}"
            case 5:
                return f"MINUS {{ {self._group(depth - 1)} }}"
            case 6 | 7:
                return f"FILTER ({self._choose(CONDITIONS).format(one, other)})"
            case 8:
                kind = self._choose(["EXISTS", "NOT EXISTS"])
                self._in_exists += 1
                inner = self._group(depth - 1)
                self._in_exists -= 1
                return f"FILTER {kind} {{ {inner} }}"
            case 9:
                return f"BIND ({one} AS {name})"
            case 10:
                inner = self._group(depth - 1)
                return f"{{ SELECT {one} (COUNT(*) AS {name}) {{ {inner} }} GROUP BY {one} }}"
            case _:
                names = " ".join(sorted({one, other}))
                return f"{{ SELECT DISTINCT {names} {{ {self._group(depth - 1)} }} }}"


class CsparqlWriter(QueryWriter):
    """Writes the same in C-SPARQL, where a group stands for a stream clause.

    Args:
        clauses: the streams of the query, all of them or none NAMED.
    """

    def __init__(self, random: Random, clauses: Sequence[Clause]) -> None:
        super().__init__(random)
        self._named = any(clause.named for clause in clauses)
        self._graphs = [f"<{clause.stream}>" for clause in clauses]

    def query(self, depth: int = 3) -> str:
        """Return a query of any form; `in_csparql` adds its streams."""
        match self._random.randrange(10):
            case 0:
                return f"ASK WHERE {{ {self._group(depth)} }}"
            case 1 | 2:
                template = "?a <urn:made> ?b . ?b <urn:by> ?c"
                return f"CONSTRUCT {{ {template} }} WHERE {{ {self._group(depth)} }}"
            case _:
                return super().query(depth)

    def _stream(self) -> str:
        graph = self._choose([*self._graphs, "?g"])
        kind = self._random.randrange(2 if self._named else 6)
        if kind < 2:
            return f"GRAPH {graph} {{ {self._block()} }}"
        return f"{{ {self._block()} }}" if kind < 5 else f"{self._block()} ."

    def _inside(self) -> str:
        if self._random.random() < 0.8:
            return super()._inside()
        self._names += 1
        one, name = self._choose(VARIABLES), f"?n{self._names}"
        return self._choose(
            [f"{{ SELECT {one} (COUNT(*) AS {name}) {{ {self._triple()} }} GROUP BY {one} }}",
             f"{{ SELECT DISTINCT {one} {{ {self._triple()} }} }}",
             f"FILTER EXISTS {{ {self._triple()} }}"]
        )  # fmt: skip


def in_csparql(text: str, clauses: Sequence[Clause], every: int | None = None) -> str:
    """Add streams to a query of `CsparqlWriter`."""
    registration = "" if every is None else f"REGISTER QUERY q COMPUTED EVERY {every}ms AS "
    return registration + text.replace("WHERE", f"{' '.join(map(str, clauses))} WHERE", 1)


def random_clauses(random: Random) -> list[Clause]:
    """Return one stream or both, with windows of any kind."""

    def clause(stream: str, *, named: bool) -> Clause:
        if random.random() < 0.25:
            step = random.randint(1, 2)
            return Clause(stream, triples=step * random.randint(1, 4), step=step, named=named)
        step = random.randint(1, 4)
        return Clause(stream, step * random.choice([1, 2, 3, 5]), step, named=named)

    named = random.random() < 0.25
    streams = random.sample([stream[1:-1] for stream in STREAMS], random.choice([1, 2, 2]))
    return [clause(stream, named=named) for stream in streams]


def random_elements(random: Random, count: int) -> list[tuple[str, int, tuple[Triple, ...]]]:
    """Return elements: stream, milliseconds since the one before, triples."""
    return [
        (
            random.choice(["urn:s1", "urn:s1", "urn:s2"]),
            random.randint(0, 3),
            tuple(dict.fromkeys(_triple(random) for _ in range(random.randint(1, 3)))),
        )
        for _ in range(count)
    ]


def _triple(random: Random) -> Triple:
    objects: Sequence[str] = NODES
    predicate = random.choice(["<urn:p>", "<urn:q>", "<urn:v>"])
    if predicate == "<urn:v>":
        objects = NUMBERS
    return random.choice(NODES), predicate, random.choice(objects)
