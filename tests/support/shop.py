"""A shop: products, offers, reviews, and queries of all shapes over them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments.workloads import named_queries

SHOP = "http://example.org/shop/"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_TRIPLES_PER_PRODUCT = 52
_COUNTRIES = ("AT", "BE", "CZ", "DE", "DK", "ES", "FI", "FR", "IT", "NL", "PL", "SE")
_FEATURES = 100
_CATEGORIES = 61
_PRODUCERS = 50
_VENDORS = 50
_PEOPLE = 500
_WAREHOUSES = 5

_FILE = Path(__file__).with_name("shop.rq")
_PREFIX = f"PREFIX : <{SHOP}>\n"

SHOP_LIMIT = 10

SHOP_QUERIES = {name: _PREFIX + query for name, query in named_queries(_FILE).items()}
"""Queries by the name of their shape."""

UNLIMITED = {"limit": SHOP_QUERIES["limit"].replace(f" LIMIT {SHOP_LIMIT}", "")}
"""What a limit cuts, whichever solutions it lets through."""

IN_GRAPHS = ("graph", "any graph")
"""Those about named graphs, which not every server has."""

COMPARED = (
    "star", "chain", "snowflake", "optional", "filter", "distinct", "order+limit", "construct",
)  # fmt: skip
"""The eight queries that the target for the number of requests is about."""


@dataclass(frozen=True, slots=True)
class Shop:
    """The data: about so many triples."""

    triples: int
    seed: int

    def write(self, path: Path, *, graphs: bool = True) -> int:
        """Write N-Triples, or N-Quads with named graphs; return the number of triples."""
        lines = list(self.lines(graphs=graphs))
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return len(lines)

    def lines(self, *, graphs: bool = True) -> Iterator[str]:
        distinct = dict.fromkeys(self._lines())
        if graphs:
            distinct |= dict.fromkeys(self._stocks())
        return (f"{line} ." for line in distinct)

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
        for number in range(_CATEGORIES):
            yield f"{_iri(f'category{number}')} {_iri('name')} {_text(f'category no {number}')}"
        for number in range(people):
            # Groups of ten, in each of which everybody is known.
            group = number - number % 10
            for knows in {group + (number + 1) % 10, group + chance.randrange(10)}:
                yield f"{_iri(f'person{number}')} {_iri('knows')} {_iri(f'person{knows}')}"

    def _stocks(self) -> Iterator[str]:
        chance = random.Random(self.seed)
        for number in range(0, max(1, self.triples // _TRIPLES_PER_PRODUCT), 2):
            stock, warehouse = _integer(chance.randrange(100)), chance.randrange(_WAREHOUSES)
            product = _iri(f"product{number}")
            yield f"{product} {_iri('stock')} {stock} {_iri(f'warehouse{warehouse}')}"

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
    return f"<{SHOP}{name}>"


def _text(text: str) -> str:
    return f'"{text}"'


def _integer(value: int) -> str:
    return f'"{value}"^^<{_XSD}integer>'
