"""A conference: a floor plan, a bibliography of a chosen size, and badge detections.

Source: the CQELS paper (2011), section 4.
"""

import random
from collections.abc import Iterable, Iterator

from annotations.terms import Quad, Term
from experiments.workloads import named_queries

_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_LV = "http://example.org/floorplan#"
_DC = "http://purl.org/dc/elements/1.1/"
_TERMS = "http://purl.org/dc/terms/"
_FOAF = "http://xmlns.com/foaf/0.1/"
_SWRC = "http://swrc.ontoware.org/ontology#"
_DATA = "http://example.org/conference/"

BADGES = "http://example.org/badges"
FLOORPLAN = "http://example.org/floorplan"

_PREFIXES = f"""PREFIX lv: <{_LV}> PREFIX dc: <{_DC}> PREFIX dcterms: <{_TERMS}>
PREFIX foaf: <{_FOAF}> PREFIX swrc: <{_SWRC}>
"""
_QUERIES = named_queries("conference.rq")
CONFERENCE_QUERIES = {name: text for name, text in _QUERIES.items() if len(name) == 2}
"""In CQELS-QL. The others are in C-SPARQL: evaluated each second over the widest window."""

_Triple = tuple[str, str, str]


def periodic_query(name: str, author: int = 0) -> str:
    """Return the query in C-SPARQL for one author."""
    text = _QUERIES[f"periodic {name}"].replace("STREAM>", f"{BADGES}>")
    return _PREFIXES + text.replace("$Name$", f"Author {author}")


def conference_query(name: str, author: int = 0) -> str:
    """Return a query of the paper for one author."""
    text = (
        CONFERENCE_QUERIES[name].replace("GRAPH>", f"{FLOORPLAN}>").replace("STREAM>", f"{BADGES}>")
    )
    return _PREFIXES + text.replace("$Name$", f"Author {author}")


class Conference:
    """The data: `rooms` in a ring with short cuts, and `people` with badges."""

    def __init__(self, seed: int, rooms: int = 30, people: int = 200) -> None:
        self._seed = seed
        self._people = people
        chance = random.Random(seed)
        edges = {tuple(sorted((room, (room + 1) % rooms))) for room in range(rooms)}
        while len(edges) < rooms * 4 // 3:
            edges.add(tuple(sorted(chance.sample(range(rooms), 2))))
        self._near: dict[int, list[int]] = {room: [] for room in range(rooms)}
        for one, other in sorted(edges):
            self._near[one].append(other)
            self._near[other].append(one)

    def floorplan(self) -> Iterator[_Triple]:
        for room, others in self._near.items():
            subject = _room(room)
            yield subject, _TYPE, f"<{_LV}Location>"
            yield subject, f"<{_LV}name>", f'"Room {room}"'
            yield subject, f"<{_LV}desc>", f'"Room {room}, floor {room // 10}"'
            for other in others:
                yield subject, f"<{_LV}connected>", _room(other)

    def bibliography(self, size: int) -> Iterator[_Triple]:
        """Yield authors, papers and proceedings: exactly `size` triples."""
        for number, triple in enumerate(self._bibliography()):
            if number == size:
                return
            yield triple

    def _bibliography(self) -> Iterator[_Triple]:
        chance = random.Random(self._seed + 1)
        authors = 0
        for authors in range(1, 301):
            yield from _author(authors - 1)
        paper = 0
        while True:
            if chance.random() < 0.4:
                yield from _author(authors)
                authors += 1
            proceedings = paper // 15
            if paper % 15 == 0:
                for _ in range(chance.randint(1, 3)):
                    editor = _person(int(authors * chance.random() ** 2))
                    yield f"<{_DATA}proceedings{proceedings}>", f"<{_SWRC}editor>", editor
            subject = f"<{_DATA}paper{paper}>"
            lead = int(authors * chance.random() ** 1.5)
            team = {lead} | {
                min(authors - 1, max(0, lead + chance.randint(-25, 25)))
                for _ in range(chance.randint(0, 3))
            }
            for author in sorted(team):
                yield subject, f"<{_DC}creator>", _person(author)
            yield subject, f"<{_DC}title>", f'"Paper {paper}"'
            yield subject, f"<{_TERMS}partOf>", f"<{_DATA}proceedings{proceedings}>"
            paper += 1

    def badges(self, count: int, per_second: float = 100.0) -> Iterator[tuple[int, _Triple]]:
        """Yield detections with times in milliseconds; people change rooms now and then."""
        chance = random.Random(self._seed + 2)
        where = [chance.randrange(len(self._near)) for _ in range(self._people)]
        at = 0
        for _ in range(count):
            at += max(1, round(chance.expovariate(per_second / 1000)))
            person = chance.randrange(self._people)
            if chance.random() < 0.05:
                where[person] = chance.choice(self._near[where[person]])
            yield at, (_person(person), f"<{_LV}detectedAt>", _room(where[person]))


def quads(triples: Iterable[_Triple]) -> Iterator[Quad]:
    """Yield triples as quads of the default graph."""
    return (Quad(*map(Term, triple)) for triple in triples)


def _room(number: int) -> str:
    return f"<{_DATA}room{number}>"


def _person(number: int) -> str:
    return f"<{_DATA}person{number}>"


def _author(number: int) -> Iterator[_Triple]:
    yield _person(number), _TYPE, f"<{_FOAF}Person>"
    yield _person(number), f"<{_FOAF}name>", f'"Author {number}"'
