"""People who know each other: ten triples each, for experiments with fragments alone."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PEOPLE = "http://example.org/people/"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_TRIPLES_EACH = 10
_KNOWN = 3
_PER_CITY = 200


@dataclass(frozen=True, slots=True)
class People:
    """The data; `triples` is a multiple of ten."""

    triples: int
    seed: int

    @property
    def count(self) -> int:
        return self.triples // _TRIPLES_EACH

    @property
    def cities(self) -> int:
        """The number of cities: about 200 people in each."""
        return max(1, self.count // _PER_CITY)

    def write(self, path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(self._lines())

    def _lines(self) -> Iterator[str]:
        chance = random.Random(self.seed)
        count, cities = self.count, self.cities
        step = max(1, count // 7)
        for number in range(count):
            s = f"<{PEOPLE}person/{number}>"
            yield f"{s} <{_TYPE}> <{PEOPLE}Kind{number % 20}> .\n"
            yield f'{s} <{PEOPLE}name> "Person number {number}" .\n'
            yield f'{s} <{PEOPLE}email> "person-{number}@mail.example" .\n'
            yield f"{s} <{PEOPLE}city> <{PEOPLE}city/{number % cities}> .\n"
            yield f'{s} <{PEOPLE}age> "{chance.randrange(18, 99)}"^^<{_XSD}integer> .\n'
            yield f'{s} <{PEOPLE}score> "{chance.randrange(10000) / 100:.2f}"^^<{_XSD}decimal> .\n'
            yield (
                f'{s} <{PEOPLE}joined> "{chance.randrange(2000, 2026)}-0{chance.randrange(1, 10)}-'
                f'{chance.randrange(10, 29)}T{chance.randrange(10, 24)}:00:00Z"'
                f"^^<{_XSD}dateTime> .\n"
            )
            first = chance.randrange(count)
            # Three different ones.
            for turn in range(_KNOWN):
                yield f"{s} <{PEOPLE}knows> <{PEOPLE}person/{(first + turn * step) % count}> .\n"

    def person(self, chance: random.Random) -> int:
        return chance.randrange(self.count)
