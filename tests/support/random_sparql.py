"""Random queries of all of SPARQL over random quads, well designed or not.

There are more variables than a part of a pattern uses, so parts may share none, only one in a
filter, or one that may be unbound. Computed values, often errors, are keys of patterns, paths,
MINUS, OPTIONAL, VALUES, sub-SELECT, GROUP BY and GRAPH. Answers are determined: no limit cuts an
incomplete order.
"""

from random import Random

from hypothesis import strategies as st

from annotations.terms import DEFAULT_GRAPH, Quad
from tests.support.random_queries import ALWAYS, GRAPHS, LITERALS, PREDICATES, PREFIX, SUBJECTS

_VARIABLES = ["?u", "?u", "?v", "?v", "?w", "?w", "?x", "?y"]
_PATHS = [
    ":p*", ":q+", ":r?", "^:p", ":p/:q", "(:p|:r)*", "(^:p/:q)+", ":q*/:p", "!(:p|:q)", "!^:q",
    "^(:p+)", "(:p|:q)", "(:p?)/:r",
]  # fmt: skip
_TESTS = [
    "{0} = {1}", "{0} != {1}", "{0} < 2", "BOUND({0})", "!BOUND({0})", "BOUND({0}) && !BOUND({1})",
    "ISIRI({0}) || {1} > 1", "SAMETERM({0}, {1})", "{0} IN ({1}, :a, 1)", "COALESCE({0}, 1) = {1}",
    "STRLEN(STR({0})) > 1", "!({0} = {1})", "{0}",
]  # fmt: skip
_EXPRESSIONS = [
    "{0}", "STR({0})", "COALESCE({0}, {1}, 7)", "IF(BOUND({0}), {1}, 2)", "{0} + 1", "{0} * {1}",
    "DATATYPE({0})", "{0} = {1}", 'CONCAT(STR({0}), "x")', "1/0", ":a", "ISNUMERIC({0})",
]  # fmt: skip
_ERRORS = [
    "1/0", "{0} / 0", "IF(ISIRI({0}), {0}, 1/0)", "IF({0} = :a, {0}, 1/0)", "?z",
    "COALESCE(1/0, {0})", "IF(BOUND({0}), {0}, ?z)", ":a",
]  # fmt: skip
_AGGREGATES = [
    "COUNT(*)", "COUNT(DISTINCT *)", "COUNT({0})", "COUNT(DISTINCT {0})", "SUM({0})", "AVG({0})",
    "SUM(DISTINCT {0})", "SUM(IF(BOUND({0}), 1, 0))", "MIN(STR({0}))",
    "MAX(IF(ISIRI({0}), {0}, :a))", "MAX(?z)", "MIN(IF(ISIRI({0}), {0}, 1/0))",
]  # fmt: skip
_DATASETS = [
    "FROM :g", "FROM :g FROM :h", "FROM NAMED :g", "FROM :g FROM NAMED :h", "FROM :none",
    "FROM :h FROM NAMED :g FROM NAMED :h", "FROM :g FROM NAMED :g FROM NAMED :none",
]  # fmt: skip


class QueryWriter:
    """Writes a query; a continuous one leaves out FROM and all forms but SELECT."""

    def __init__(self, random: Random, *, continuous: bool = False) -> None:
        self._random = random
        self._choose = random.choice
        self._continuous = continuous
        self._computed: list[str] = []

    def query(self) -> str:
        """Return the text, with its prefixes."""
        chosen = self._random.randrange(13)
        dataset = self._choose(_DATASETS) if self._random.random() < 0.2 else ""
        if self._continuous:
            chosen, dataset = chosen % 8, ""
        body = f"{dataset} {{ {self.pattern()} }}"
        if self._random.random() < 0.1 and chosen not in (5, 6):
            body += f" {self._data()}"
        one, other = self._variable(), self._variable()
        match chosen:
            case 0 | 1 | 2:
                text = f"SELECT * {body}"
            case 3:
                text = f"SELECT DISTINCT {self._choose(['*', one, f'?made {one}'])} {body}"
            case 4:
                text = f"SELECT {one} ({self._expression()} AS ?made) {body}"
            case 5:
                having = self._choose(["", f"HAVING(COUNT(*) > 1 || {self._exists(1)})"])
                text = f"SELECT {one} ({self._aggregate()} AS ?made) {body} GROUP BY {one} {having}"
            case 6:
                both = f"({self._aggregate()} AS ?made) ({self._aggregate()} AS ?more)"
                text = f"SELECT {both} {body}"
            case 7:
                text = f"SELECT {one} {body} ORDER BY {one} {self._choose(['', 'LIMIT 0'])}"
            case 8 | 9:
                text = f"ASK {body}"
            case 10:
                # No IRI beside them: pyoxigraph describes it only where there is a solution.
                described = self._choose([one, " ".join(dict.fromkeys([one, other])), "*"])
                text = f"DESCRIBE {described} {body}"
            case _:
                text = (
                    f"CONSTRUCT {{ {one} :made {other} . {other} {self._variable()} 1 . "
                    f":a :b {one} }} {body}"
                )
        return PREFIX + " ".join(text.split())

    def pattern(self) -> str:
        """Return the inside of braces."""
        return " ".join(self._group(self._choose([2, 2, 3])).split())

    # ---------------------------------------------------------------------------- pieces

    def _variable(self) -> str:
        if self._computed and self._random.random() < 0.3:
            return self._choose(self._computed)
        return self._choose(_VARIABLES)

    def _computed_name(self, *before: str) -> str:
        """Return a variable for a computed value that these parts do not mention."""
        mentioned = " ".join(before)
        unused = [name for name in _VARIABLES if name not in mentioned]
        if not unused or self._random.random() < 0.4:
            unused = [f"?k{len(self._computed) + 1}"]
        self._computed.append(self._choose(unused))
        return self._computed[-1]

    def _bind(self, *before: str) -> str:
        value = self._choose(_ERRORS).format(self._variable())
        return f"BIND({value} AS {self._computed_name(*before, value)})"

    def _triple(self) -> str:
        if self._random.random() < 0.15:
            return f"{self._end()} {self._choose(_PATHS)} {self._end()}"
        predicate = self._choose([":p", ":q", ":r", ":p", ":q", self._variable()])
        constant = self._random.random() < 0.12
        object_ = self._choose([":a", ":b", "1", '"x"']) if constant else self._variable()
        return f"{self._choose([self._end(), self._end(), '[]'])} {predicate} {object_}"

    def _end(self) -> str:
        return self._choose([":a", ":b"]) if self._random.random() < 0.12 else self._variable()

    def _data(self) -> str:
        names = dict.fromkeys([self._variable() for _ in range(self._choose([1, 2]))])
        rows = [
            " ".join(self._choose(["UNDEF", ":a", ":b", "1", '"x"']) for _ in names)
            for _ in range(self._choose([0, 1, 2, 2, 3]))
        ]
        return f"VALUES ({' '.join(names)}) {{ {' '.join(f'({row})' for row in rows)} }}"

    def _test(self) -> str:
        return self._choose(_TESTS).format(self._variable(), self._variable())

    def _expression(self) -> str:
        return self._choose(_EXPRESSIONS).format(self._variable(), self._variable())

    def _aggregate(self) -> str:
        return self._choose(_AGGREGATES).format(self._variable())

    def _exists(self, depth: int) -> str:
        return f"{self._choose(['EXISTS', 'NOT EXISTS'])} {{ {self._group(depth)} }}"

    # ---------------------------------------------------------------------------- groups

    def _group(self, depth: int) -> str:
        parts = [self._element(depth - 1) for _ in range(self._choose([1, 1, 2, 2, 3]))]
        if self._random.random() < 0.6:
            parts.insert(0, f"{self._triple()} .")
        if self._random.random() < 0.15:
            parts.insert(0, self._bind())
        if self._random.random() < 0.05:
            parts = []
        return " ".join(parts)

    def _element(self, depth: int) -> str:
        if depth <= 0:
            return self._choose([f"{self._triple()} .", f"{self._triple()} .", self._data()])
        inner = self._group(depth)
        match self._random.randrange(20):
            case 0 | 1:
                return f"{self._triple()} ."
            case 2:
                return self._data()
            case 3 | 4 | 5:
                return f"OPTIONAL {{ {inner} }}"
            case 6:
                test = self._choose([self._test(), self._test(), self._exists(depth - 1)])
                return f"OPTIONAL {{ {inner} FILTER({test}) }}"
            case 7:
                return f"{{ {inner} }}"
            case 8:
                return f"{{ {inner} }} UNION {{ {self._group(depth)} }}"
            case 9:
                return f"MINUS {{ {inner} }}"
            case 10:
                return f"FILTER({self._test()})"
            case 11 | 12:
                test = self._exists(depth)
                return f"FILTER({self._choose([test, test, f'{self._test()} || {test}'])})"
            case 13:
                value = self._choose([self._expression(), self._exists(depth - 1)])
                self._computed.append(f"?k{len(self._computed) + 1}")
                return f"BIND({value} AS {self._computed[-1]})"
            case 14 | 15:
                return f"GRAPH {self._choose([':g', ':none', '?g', '?g', '?u'])} {{ {inner} }}"
            case 16:
                names = " ".join(dict.fromkeys([self._variable(), self._variable()]))
                which = self._choose([names, f"DISTINCT {names}", "*", "DISTINCT *"])
                return f"{{ SELECT {which} {{ {inner} }} }}"
            case 17:
                value = self._choose(_ERRORS).format(self._variable())
                name = self._computed_name(inner, value)
                # pyoxigraph takes no plain variable here.
                key = f"(COALESCE({value}) AS {name})"
                how = self._choose([f"({value} AS {name}) {{ {inner} }}",
                                    f"{name} {{ {inner} }} GROUP BY {key}"])  # fmt: skip
                return f"{{ SELECT {how} }}"
            case 18:
                return f"{{ {inner} {self._bind(inner)} }}"
            case _:
                one, aggregate = self._variable(), self._aggregate()
                counted = f"({aggregate} AS {self._computed_name(one, inner, aggregate)})"
                how = self._choose([f"{one} {counted} {{ {inner} }} GROUP BY {one}",
                                    f"{counted} {{ {inner} }}"])  # fmt: skip
                return f"{{ SELECT {how} }}"


def random_quads(random: Random) -> frozenset[Quad]:
    """Return a few quads, with those that queries mention."""
    graphs = [DEFAULT_GRAPH, DEFAULT_GRAPH, DEFAULT_GRAPH, *GRAPHS]
    # Values that meet, and not only IRIs.
    objects = [*SUBJECTS, *SUBJECTS, *LITERALS]
    return frozenset(
        Quad(
            random.choice(SUBJECTS),
            random.choice(PREDICATES),
            random.choice(objects),
            random.choice(graphs),
        )
        for _ in range(random.randint(6, 30))
    ) | {ALWAYS}


randoms = st.integers(0, 2**64).map(Random)
"""Where a query, or quads, come from: one number tells which."""
