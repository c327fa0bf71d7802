"""The queries of all shapes over the shop, and Comunica's number of requests for them.

Counted over our server without blocks of bindings, pages of 100, nothing cached: all requests, and
those before the first answer. Parallel requests come in varying order, so the second number, and
those of queries with a limit, vary by a few; these are the least of three runs of Comunica 5.4.1.
`tests/peers/test_shapes.py` counts anew.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pyoxigraph
from rdflib import Graph

from annotations.terms import Quad
from tests.support.oracle import SolutionBag, bag, quad_of, select, term_of
from tests.support.shop import SHOP_LIMIT, SHOP_QUERIES, UNLIMITED, Shop
from tpf_client import Solutions

TRIPLES = 100_000
SERVER = {"max_values": 0, "max_page_size": 100}

COMUNICA: dict[str, tuple[int, int]] = {
    "triple": (2, 2),
    "star": (270, 22),
    "chain": (305, 17),
    "snowflake": (932, 67),
    "big join": (225, 56),
    "optional": (61, 7),
    "optional twice": (178, 27),
    "optional in optional": (393, 47),
    "union": (23, 4),
    "union with a path": (10, 6),
    "path": (43, 19),
    "path of any length": (10, 6),
    "path of one step or none": (25, 6),
    "path of two steps": (44, 7),
    "path backwards": (38, 12),
    "path of either": (66, 12),
    "path from a pattern": (46, 39),
    "path of acquaintances": (22, 7),
    "bind": (3, 3),
    "bind computed": (9, 9),
    "bind after a pattern": (39, 7),
    "values": (9, 9),
    "values in pairs": (70, 24),
    "sub-query that counts": (143, 124),
    "sub-query with having": (219, 219),
    "sub-query that finds the most": (29, 11),
    "sub-query with limit": (10, 10),
    "sub-query of the different": (36, 35),
    "filter": (315, 145),
    "filter by equality": (3, 3),
    "filter by a list": (41, 22),
    "exists": (83, 11),
    "not exists": (65, 4),
    "minus": (34, 14),
    "order+limit": (106, 106),
    "limit": (19, 10),
    "distinct": (123, 8),
    "aggregate": (98, 98),
    "ask": (34, 34),
    "construct": (491, 42),
    "describe": (2, 2),
    "graph": (23, 4),
    "any graph": (12, 4),
    "all together": (1892, 1892),
}


ROUNDS: dict[str, int] = {
    "triple": 2,
    "star": 3,
    "chain": 4,
    "snowflake": 13,
    "big join": 3,
    "optional": 3,
    "optional twice": 4,
    "optional in optional": 5,
    "union": 2,
    "union with a path": 3,
    "path": 4,
    "path of any length": 3,
    "path of one step or none": 3,
    "path of two steps": 3,
    "path backwards": 4,
    "path of either": 3,
    "path from a pattern": 2,
    "path of acquaintances": 4,
    "bind": 2,
    "bind computed": 3,
    "bind after a pattern": 3,
    "values": 3,
    "values in pairs": 7,
    "sub-query that counts": 21,
    "sub-query with having": 30,
    "sub-query that finds the most": 6,
    "sub-query with limit": 3,
    "sub-query of the different": 8,
    "filter": 22,
    "filter by equality": 2,
    "filter by a list": 3,
    "exists": 4,
    "not exists": 3,
    "minus": 3,
    "order+limit": 13,
    "limit": 3,
    "distinct": 5,
    "aggregate": 15,
    "ask": 12,
    "construct": 16,
    "describe": 2,
    "graph": 3,
    "any graph": 2,
    "all together": 36,
}
"""Round trips, one after the other, until the first answer, with eight requests at a time.

Comunica's are about its time with 20 ms of latency minus that without, in units of 20 ms: 4.7 for
"snowflake", 7 for "construct", 5 for "values in pairs", 2.5 for "path of acquaintances"; of all
others ours are no more than one above, or fewer.
"""


def shop(triples: int = TRIPLES) -> Iterator[Quad]:
    """Return about so many triples."""
    text = "\n".join(Shop(triples, seed=1).lines())
    return map(quad_of, pyoxigraph.parse(text, format=pyoxigraph.RdfFormat.N_QUADS))


def content(answer: Solutions | Graph | bool) -> SolutionBag | set[Any] | bool:
    """Return an answer in comparable form, for `right`."""
    if isinstance(answer, Solutions):
        rows = (zip(answer.variables, row.row, strict=True) for row in answer)
        return bag({f"?{name}": term for name, term in row if term is not None} for row in rows)
    if isinstance(answer, Graph):
        return {tuple(term.n3() for term in triple) for triple in answer}
    return answer


def right(store: pyoxigraph.Store, name: str, found: SolutionBag | set[Any] | bool) -> bool:
    """True if this is an answer to a query over a store."""
    query = SHOP_QUERIES[name]
    if isinstance(found, Counter):
        if name in UNLIMITED:
            return found.total() == SHOP_LIMIT and found <= bag(select(store, UNLIMITED[name]))
        return found == bag(select(store, query))
    result = store.query(query)
    if isinstance(result, pyoxigraph.QueryTriples):
        return found == {tuple(map(term_of, triple)) for triple in result}
    return found is bool(result)


_EDGES = {
    "product": {"label": "text", "producer": "producer", "category": "category",
                "price": "number", "feature": "feature", "discount": "number"},
    "offer": {"product": "product", "vendor": "vendor", "price": "number", "days": "number"},
    "review": {"product": "product", "reviewer": "person", "rating": "number",
               "helpful": "number", "title": "text"},
    "producer": {"country": "country", "name": "text"},
    "vendor": {"country": "country", "name": "text"},
    "person": {"country": "country", "name": "text", "knows": "person"},
    "category": {"within": "category", "name": "text"},
    "feature": {"name": "text"},
}  # fmt: skip
_NUMBERS = {
    "product": 1923, "offer": 5769, "review": 11538, "producer": 50, "vendor": 50, "person": 500,
    "category": 61, "feature": 100,
}  # fmt: skip
_COUNTRIES = ("AT", "BE", "CZ", "DE", "DK", "ES")


class RandomShape:
    """The most expensive kinds of queries over the shop: a tree of patterns, and one more part."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kinds: dict[str, str] = {}
        self._patterns: list[str] = []
        self._variable(random.choice(["product", "product", "offer", "review", "person"]))
        for _ in range(random.choice([1, 2, 2, 3, 3, 4])):
            self._grow()

    def values(self) -> str:
        """VALUES, whose rows leave different variables open."""
        names = [name for name, kind in self._kinds.items() if self._constant(kind)]
        chosen = self._random.sample(names, min(len(names), self._random.choice([2, 2, 3])))
        rows = []
        for _ in range(self._random.choice([1, 2, 3, 5])):
            row = [self._constant(self._kinds[name]) for name in chosen]
            place = self._random.randrange(len(row))
            shown = [
                term if n == place or self._random.random() < 0.5 else "UNDEF"
                for n, term in enumerate(row)
            ]
            rows.append(f"({' '.join(shown)})")
        data = f"VALUES ({' '.join(chosen)}) {{ {' '.join(rows)} }}"
        return f"SELECT * {{ {data} {self._body} }}"

    def nothing(self) -> str:
        """A limit, and a filter that lets nothing through."""
        name = self._random.choice(list(self._kinds))
        test = f"STRLEN(STR({name})) > 99"
        limit = self._random.choice([1, 5, 50])
        return f"SELECT * {{ {self._body} FILTER({test}) }} LIMIT {limit}"

    def some(self) -> str:
        """A limit, and a filter that lets some through."""
        numbers = [name for name, kind in self._kinds.items() if kind == "number"]
        if numbers:
            test = f"{self._random.choice(numbers)} < {self._random.choice([3, 50, 300, 900])}"
        else:
            name = self._random.choice(list(self._kinds))
            test = f'REGEX(STR({name}), "{self._random.choice(["1", "7", "12", "33"])}$")'
        limit = self._random.choice([1, 3, 10])
        return f"SELECT * {{ {self._body} FILTER({test}) }} LIMIT {limit}"

    def limited(self) -> str:
        """A limit."""
        return f"SELECT * {{ {self._body} }} LIMIT {self._random.choice([1, 3, 10, 100])}"

    def absent(self) -> str:
        """A limit, and a pattern that may have no match."""
        more = self._more()
        word = self._random.choice(["FILTER NOT EXISTS", "MINUS"])
        limit = self._random.choice([1, 3, 10])
        return f"SELECT * {{ {self._body} {word} {{ {more} }} }} LIMIT {limit}"

    def without(self) -> str:
        """A pattern that may have no match."""
        more = self._more()
        word = self._random.choice(["FILTER NOT EXISTS", "FILTER EXISTS", "MINUS"])
        return f"SELECT * {{ {self._body} {word} {{ {more} }} }}"

    def optional(self) -> str:
        """A pattern that may have no match, and perhaps a limit."""
        more = self._more()
        limit = self._random.choice(["", " LIMIT 3", " LIMIT 10", " LIMIT 100"])
        return f"SELECT * {{ {self._body} OPTIONAL {{ {more} }} }}{limit}"

    def different(self) -> str:
        """The distinct values of one variable."""
        name = self._random.choice(list(self._kinds))
        return f"SELECT DISTINCT {name} {{ {self._body} }}"

    def first_ones(self) -> str:
        """The first rows in an order, in a sub-query."""
        first = "?v0"
        some = self._random.choice([1, 3, 10])
        inner = f"SELECT DISTINCT {first} {{ {self._body} }} ORDER BY {first} LIMIT {some}"
        kind = self._kinds[first]
        after = self._random.choice(list(_EDGES[kind]))
        return f"SELECT * {{ {{ {inner} }} {first} :{after} ?after }}"

    @property
    def _body(self) -> str:
        return " . ".join(self._patterns)

    def _more(self) -> str:
        """A pattern that may have no match for a solution."""
        names = [name for name, kind in self._kinds.items() if kind in _EDGES]
        name = self._random.choice(names)
        predicate, there = self._random.choice(list(_EDGES[self._kinds[name]].items()))
        constant = self._constant(there) if self._random.random() < 0.5 else ""
        if self._random.random() < 0.3:
            return f"?from :{self._into(self._kinds[name])} {name}"
        return f"{name} :{predicate} {constant or '?there'}"

    def _variable(self, kind: str) -> str:
        name = f"?v{len(self._kinds)}"
        self._kinds[name] = kind
        return name

    def _constant(self, kind: str) -> str:
        if kind == "country":
            return f":{self._random.choice(_COUNTRIES)}"
        if kind not in _NUMBERS:
            return ""
        return f":{kind}{self._random.randrange(9 if kind == 'category' else 0, _NUMBERS[kind])}"

    def _into(self, kind: str) -> str:
        """Return a property with such values."""
        into = [p for edges in _EDGES.values() for p, o in edges.items() if o == kind]
        return self._random.choice(into or ["label"])

    def _grow(self) -> None:
        chance = self._random
        name = chance.choice([name for name, kind in self._kinds.items() if kind in _EDGES])
        kind = self._kinds[name]
        into = [(s, p) for s, edges in _EDGES.items() for p, o in edges.items() if o == kind]
        if into and chance.random() < 0.3:
            subject, predicate = chance.choice(into)
            self._patterns.append(f"{self._variable(subject)} :{predicate} {name}")
            return
        predicate, there = chance.choice(list(_EDGES[kind].items()))
        fixed = self._constant(there) if chance.random() < 0.3 else ""
        self._patterns.append(f"{name} :{predicate} {fixed or self._variable(there)}")
