"""A shop: products, offers, reviews, and queries of all shapes over them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EX = "http://example.org/shop/"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_TRIPLES_PER_PRODUCT = 52
_COUNTRIES = ("AT", "BE", "CZ", "DE", "DK", "ES", "FI", "FR", "IT", "NL", "PL", "SE")
_FEATURES = 100
_CATEGORIES = 61
_PRODUCERS = 50
_VENDORS = 50
_PEOPLE = 500

_PREFIX = f"PREFIX : <{EX}>\n"

QUERIES: dict[str, str] = {
    name: _PREFIX + query
    for name, query in {
        "star": "SELECT * { ?p :feature :feature7 ; :label ?l ; :price ?e ; :producer ?m ; "
        ":category ?c }",
        "chain": "SELECT * { ?o :vendor :vendor3 . ?o :product ?p . ?p :producer ?m . "
        "?m :country ?c }",
        "snowflake": "SELECT * { ?p :category :category9 ; :label ?l ; :producer ?m . "
        "?m :country ?mc . ?o :product ?p ; :price ?e ; :vendor ?v . ?v :country ?vc }",
        "optional": "SELECT * { ?p :producer :producer5 ; :label ?l OPTIONAL { ?p :discount ?d } }",
        "union": "SELECT * { { ?p :category :category11 } UNION { ?p :category :category12 } "
        "?p :label ?l }",
        "filter": "SELECT * { ?r :rating 1 ; :helpful ?h ; :product ?p FILTER(?h > 95) }",
        "distinct": "SELECT DISTINCT ?c { ?r :reviewer ?u . ?u :country ?c }",
        "order+limit": "SELECT ?o ?e { ?o :vendor :vendor1 ; :price ?e } ORDER BY ?e ?o LIMIT 10",
        "aggregate": "SELECT ?m (COUNT(*) AS ?n) (MAX(?e) AS ?x) "
        "{ ?p :producer ?m ; :price ?e FILTER(?e > 500) } GROUP BY ?m",
        "ask": "ASK { ?o :vendor :vendor2 ; :product ?p . ?p :category :category13 }",
        "construct": "CONSTRUCT { ?p :soldIn ?c } { ?p :category :category14 . "
        "?o :product ?p ; :vendor ?v . ?v :country ?c }",
        "not exists": "SELECT * { ?p :category :category15 ; :label ?l "
        "FILTER NOT EXISTS { ?p :discount ?d } }",
        "big join": "SELECT ?r ?m { ?r :product ?p . ?p :producer ?m . ?m :country :BE }",
        "path": "SELECT * { ?c :within+ :category1 . ?p :category ?c }",
    }.items()
}

COMPARED = (
    "star", "chain", "snowflake", "optional", "filter", "distinct", "order+limit", "construct",
)  # fmt: skip
"""The eight queries that the target for the number of requests is about."""


@dataclass(frozen=True, slots=True)
class Shop:
    """The data.

    Args:
        triples: about how many.
        seed: where chance comes from.
    """

    triples: int
    seed: int

    def write(self, path: Path) -> int:
        """Write the triples as N-Triples; return how many there are."""
        lines = list(dict.fromkeys(f"{line} .\n" for line in self._lines()))
        path.write_text("".join(lines), encoding="utf-8")
        return len(lines)

    def _lines(self) -> Iterator[str]:
        chance = random.Random(self.seed)
        products = max(1, self.triples // _TRIPLES_PER_PRODUCT)
        people = max(1, min(_PEOPLE, products))
        for kind, count in (("producer", _PRODUCERS), ("vendor", _VENDORS), ("person", people)):
            for number in range(count):
                country = _COUNTRIES[chance.randrange(len(_COUNTRIES))]
                yield f"{_iri(f'{kind}{number}')} {_iri('country')} {_iri(country)}"
                yield f"{_iri(f'{kind}{number}')} {_iri('name')} {_text(f'{kind} no {number}')}"
        for number in range(_FEATURES):
            yield f"{_iri(f'feature{number}')} {_iri('name')} {_text(f'feature no {number}')}"
        for number in range(1, _CATEGORIES):
            within = (number - 1) // 4
            yield f"{_iri(f'category{number}')} {_iri('within')} {_iri(f'category{within}')}"
        for number in range(products):
            yield from self._product(number, chance)
        for number in range(3 * products):
            offer = _iri(f"offer{number}")
            yield f"{offer} {_iri('product')} {_iri(f'product{chance.randrange(products)}')}"
            yield f"{offer} {_iri('vendor')} {_iri(f'vendor{chance.randrange(_VENDORS)}')}"
            yield f"{offer} {_iri('price')} {_integer(chance.randrange(5, 1000))}"
            yield f"{offer} {_iri('days')} {_integer(chance.randrange(1, 15))}"
        for number in range(6 * products):
            review = _iri(f"review{number}")
            yield f"{review} {_iri('product')} {_iri(f'product{chance.randrange(products)}')}"
            yield f"{review} {_iri('reviewer')} {_iri(f'person{chance.randrange(people)}')}"
            yield f"{review} {_iri('rating')} {_integer(chance.randrange(1, 6))}"
            yield f"{review} {_iri('helpful')} {_integer(chance.randrange(100))}"
            yield f"{review} {_iri('title')} {_text(f'review no {number}')}"

    def _product(self, number: int, chance: random.Random) -> Iterator[str]:
        product = _iri(f"product{number}")
        yield f"{product} {_iri('label')} {_text(f'product no {number}')}"
        yield f"{product} {_iri('producer')} {_iri(f'producer{chance.randrange(_PRODUCERS)}')}"
        yield f"{product} {_iri('category')} {_iri(f'category{chance.randrange(9, _CATEGORIES)}')}"
        yield f"{product} {_iri('price')} {_integer(chance.randrange(5, 1000))}"
        for _ in range(3):
            yield f"{product} {_iri('feature')} {_iri(f'feature{chance.randrange(_FEATURES)}')}"
        if number % 3 == 0:
            yield f"{product} {_iri('discount')} {_integer(chance.randrange(5, 50))}"


def _iri(name: str) -> str:
    return f"<{EX}{name}>"


def _text(text: str) -> str:
    return f'"{text}"'


def _integer(value: int) -> str:
    return f'"{value}"^^<{_XSD}integer>'
