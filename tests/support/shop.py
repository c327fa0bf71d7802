"""A web shop, generated: about 105,000 triples, and queries of the usual shapes over it."""

import random
from collections.abc import Iterator

from annotations.namespaces import RDF
from annotations.terms import Quad, Term, iri, literal

EX = "http://shop.example.org/"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_TYPE = iri(RDF + "type")

PRODUCTS = 3000
OFFERS = 7000
REVIEWS = 6000
PERSONS = 2400
PRODUCERS = 60
VENDORS = 40
COUNTRIES = 10
FEATURES = 150
CATEGORIES = 80


def _number(value: int, kind: str = "integer") -> Term:
    return literal(str(value), datatype=_XSD + kind)


def _node(kind: str, number: int) -> Term:
    return iri(f"{EX}{kind}{number}")


def shop(scale: float = 1.0, seed: int = 7) -> Iterator[Quad]:
    """The triples of the shop.

    Args:
        scale: size relative to about 105,000 triples.
        seed: of the random choices.
    """
    chance = random.Random(seed)
    products, offers = int(PRODUCTS * scale), int(OFFERS * scale)
    reviews, persons = int(REVIEWS * scale), int(PERSONS * scale)

    def say(subject: Term, predicate: str, value: Term) -> Quad:
        return Quad(subject, iri(EX + predicate), value)

    for n in range(CATEGORIES):
        yield say(_node("category", n), "label", literal(f"category {n}"))
        if n:
            yield say(_node("category", n), "broader", _node("category", (n - 1) // 3))
    for n in range(PRODUCERS):
        yield say(_node("producer", n), "label", literal(f"producer {n}"))
        yield say(_node("producer", n), "country", _node("country", n % COUNTRIES))
    for n in range(VENDORS):
        yield say(_node("vendor", n), "label", literal(f"vendor {n}"))
        yield say(_node("vendor", n), "country", _node("country", n % COUNTRIES))
    for n in range(products):
        product = _node("product", n)
        yield Quad(product, _TYPE, iri(EX + "Product"))
        yield say(product, "label", literal(f"product {n}"))
        yield say(product, "producer", _node("producer", chance.randrange(PRODUCERS)))
        yield say(product, "category", _node("category", chance.randrange(CATEGORIES)))
        yield say(product, "weight", _number(chance.randrange(1, 2000)))
        for feature in sorted(chance.sample(range(FEATURES), chance.randrange(2, 6))):
            yield say(product, "feature", _node("feature", feature))
        if n % 3 == 0:
            yield say(product, "comment", literal(f"about product {n}"))
    for n in range(offers):
        offer = _node("offer", n)
        yield Quad(offer, _TYPE, iri(EX + "Offer"))
        yield say(offer, "product", _node("product", chance.randrange(products)))
        yield say(offer, "vendor", _node("vendor", chance.randrange(VENDORS)))
        yield say(offer, "price", _number(chance.randrange(1, 10000)))
        yield say(offer, "days", _number(chance.randrange(1, 15)))
    for n in range(reviews):
        review = _node("review", n)
        yield Quad(review, _TYPE, iri(EX + "Review"))
        yield say(review, "reviewFor", _node("product", chance.randrange(products)))
        yield say(review, "reviewer", _node("person", chance.randrange(persons)))
        yield say(review, "rating", _number(chance.randrange(1, 11)))
        yield say(review, "title", literal(f"review {n}", language="en"))
    for n in range(persons):
        person = _node("person", n)
        yield say(person, "name", literal(f"person {n}"))
        yield say(person, "country", _node("country", chance.randrange(COUNTRIES)))
        if n % 2:
            yield say(person, "knows", _node("person", chance.randrange(persons)))


PREFIX = f"PREFIX : <{EX}> "
QUERIES = {
    "star": "SELECT * { ?p :feature :feature7 ; :label ?l ; :producer ?r ; :category ?c ; "
    ":weight ?w }",
    "chain": "SELECT * { ?o :vendor :vendor3 ; :product ?p . ?p :producer ?r . "
    "?r :country :country4 }",
    "snowflake": "SELECT * { ?o :product ?p ; :price ?x ; :vendor ?v . "
    "?p :label ?l ; :feature :feature11 ; :producer ?r . ?v :label ?n . ?r :label ?m }",
    "optional": "SELECT * { ?p :category :category5 ; :label ?l OPTIONAL { ?p :comment ?c } }",
    "union": "SELECT * { { ?p :feature :feature3 } UNION { ?p :category :category9 } "
    "?p :label ?l }",
    "filter": "SELECT * { ?r :rating ?x . ?r :reviewFor ?p . ?r :title ?t . "
    "?p :producer :producer5 FILTER(?x > 8) }",
    "distinct": "SELECT DISTINCT ?c { ?r :reviewFor ?p ; :reviewer ?q . ?p :producer :producer8 . "
    "?q :country ?c }",
    "order": "SELECT ?l ?w { ?p :producer :producer9 ; :label ?l ; :weight ?w } "
    "ORDER BY DESC(?w) LIMIT 10",
    "aggregate": "SELECT ?v (AVG(?x) AS ?mean) { ?o :vendor ?v ; :price ?x ; :product ?p . "
    "?p :category :category12 } GROUP BY ?v",
    "ask": "ASK { ?p :producer :producer2 ; :feature :feature20 }",
    "construct": "CONSTRUCT { ?q :likes ?p } { ?r :reviewer ?q ; :reviewFor ?p ; :rating 10 . "
    "?q :country :country1 }",
    "notexists": "SELECT * { ?p :producer :producer4 ; :label ?l "
    "FILTER NOT EXISTS { ?r :reviewFor ?p } }",
    "bigjoin": "SELECT * { ?o :product ?p ; :price ?x . ?p :producer ?r . ?r :country :country3 }",
    "path": "SELECT * { ?c :broader+ :category1 }",
}
"""Queries by the name of their shape."""

TARGETED = (
    "star", "chain", "snowflake", "optional", "filter", "distinct", "order", "construct",
)  # fmt: skip
"""The eight whose requests are counted together."""
