"""What ``fragments`` asks for: patterns, formats, and the requests for them."""

import random
from collections.abc import Iterator
from urllib.parse import quote

from experiments.harness.processes import LOOPBACK
from experiments.workloads.people import PEOPLE, People

PEOPLE_DATASET = "people"
FORMATS = {
    "TriG": "application/trig",
    "N-Quads": "application/n-quads",
    "JSON-LD": "application/ld+json",
    "HTML": "text/html",
}
"""Media types by what figures call them."""
PATTERNS = (
    "first page", "predicate", "subject", "existence", "predicate+object", "deep page",
)  # fmt: skip
NOT_MODIFIED = "304"
"""Stands where a pattern would: a page that the client has."""
SELDOM = "subject, seldom"
"""Stands where a pattern would: subjects, a few in a second."""
_URLS = 200


def request(port: int, path: str, media_type: str, fields: str = "") -> str:
    """A whole request; `fields` end its header."""
    return f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nAccept: {media_type}\r\n{fields}\r\n"


def paths(people: People, seed: int, pattern: str) -> Iterator[str]:
    """Paths of requests of a class of patterns; with random constants where it has some."""
    chance = random.Random(f"{seed} {pattern}")
    if pattern == "first page":
        yield f"/{PEOPLE_DATASET}"
        return
    if pattern == "predicate":
        yield _path(predicate=f"{PEOPLE}knows")
        return
    for _ in range(_URLS):
        person = people.person(chance)
        subject, city = f"{PEOPLE}person/{person}", f"{PEOPLE}city/{person % people.cities}"
        match pattern:
            case "subject":
                yield _path(subject=subject)
            case "existence":
                yield _path(subject=subject, predicate=f"{PEOPLE}city", object=city)
            case "predicate+object":
                yield _path(predicate=f"{PEOPLE}city", object=city)
            case _:
                yield f"/{PEOPLE_DATASET}?page={chance.randrange(2, max(3, people.triples // 100))}"


def _path(**terms: str) -> str:
    query = "&".join(f"{name}={quote(term, safe='')}" for name, term in terms.items())
    return f"/{PEOPLE_DATASET}?{query}"
