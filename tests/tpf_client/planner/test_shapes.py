"""Queries of all shapes: the right answers, with no more requests than Comunica."""

from collections import Counter

import pyoxigraph
import pytest

from tests.support.live_server import LiveServer
from tests.support.oracle import bag, select
from tests.support.rounds import Rounds
from tests.support.shapes import COMUNICA, ROUNDS, right
from tests.support.shop import SHOP, SHOP_QUERIES
from tests.tpf_client.planner.conftest import ShapeAnswer, ask
from tpf_client import Solutions

pytestmark = pytest.mark.xdist_group("the shop of all shapes")


def test_every_shape_is_compared() -> None:
    assert list(COMUNICA) == list(SHOP_QUERIES)
    assert len(SHOP_QUERIES) >= 40


LATER = {
    # Comunica asks for more, one by one: of ours there are 61 and 29 in all, and a few keys go
    # before the others side by side.
    "exists": 12, "not exists": 5,
    # A request per offer would be more than the whole fragments.
    "snowflake": 77,
    # A group is there when its last member is; then the whole fragment takes fewer requests.
    "sub-query that counts": 143, "sub-query that finds the most": 19,
    # We hand out a graph when it is complete.
    "construct": 111,
}  # fmt: skip
"""Shapes whose first answer takes us more requests than Comunica, with how many."""


@pytest.mark.parametrize("shape", SHOP_QUERIES)
def test_no_shape_takes_more_requests_than_comunica(
    shape_answer: ShapeAnswer, oracle: pyoxigraph.Store, shape: str
) -> None:
    found, requests, first = shape_answer(shape)
    assert right(oracle, shape, found)
    most, before_first = COMUNICA[shape]
    assert requests <= most
    assert first <= LATER.get(shape, before_first)


@pytest.mark.parametrize("shape", SHOP_QUERIES)
def test_how_many_round_trips_it_is_to_the_first_answer(plain_shop: LiveServer, shape: str) -> None:
    """And no more requests than Comunica's, where eight are under way at a time."""
    rounds = Rounds()
    with rounds.counted(), plain_shop.client(parallelism=8) as client:
        answer = client.query(SHOP_QUERIES[shape])
        if isinstance(answer, Solutions):
            passed = [rounds.passed for _ in answer]
            first = passed[0]
        else:
            first = rounds.passed
    assert first <= ROUNDS[shape]
    assert len(rounds.asked) <= COMUNICA[shape][0]


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        # The form, two first pages, a page per product that there is.
        ("?p :category :category23 BIND(IRI(REPLACE(STR(?p), 'product', 'offer')) AS ?o) "
         "OPTIONAL { ?o :price ?e }", 39),
        ("?p :category :category23 BIND(IRI(REPLACE(STR(?p), 'product', 'offer')) AS ?o) "
         "MINUS { ?o :price ?e FILTER(?e > 500) }", 39),
        # Of an error nobody knows what it is compatible with: the whole fragment, once.
        ("VALUES ?n { 7 'x' } BIND(IRI(CONCAT(STR(:product), STR(?n + 0))) AS ?p) "
         "?p :discount ?e", 11),
        # A constant in both parts of a union, and in an optional part; the rest as it was.
        ("BIND(:product9 AS ?p) { ?p :price ?e } UNION { ?p :category ?c . ?c :within ?d } "
         "OPTIONAL { ?p :label ?l }", 5),
        # One page of products is enough for five of them.
        ("{ SELECT * { ?p :label ?l ; :producer ?m } LIMIT 5 }", 8),
        # Nothing can match: what is joined with it is not read, or nobody is asked.
        ("?p :nothing ?n ; :price ?e", 3),
        ("VALUES ?q { 1 } ?p ?q ?o FILTER EXISTS { SELECT * { ?p ?q ?o } LIMIT 5 }", 2),
        ("{ SELECT * { VALUES ?q { 1 } ?p ?q ?o } LIMIT 5 }", 2),
        # A path to a known end; what is on the way decides nothing.
        ("?c :within+ :category3 . ?c :name ?n", 11),
    ],
)  # fmt: skip
def test_what_is_known_is_asked_for(
    plain_shop: LiveServer, oracle: pyoxigraph.Store, pattern: str, most: int
) -> None:
    query = f"PREFIX : <{SHOP}> SELECT * {{ {pattern} }}"
    found, requests, _ = ask(plain_shop, query)
    if pattern.startswith("{ SELECT * { ?p :label"):
        assert isinstance(found, Counter)
        assert found.total() == 5
        query = query.replace("LIMIT 5", "")
        assert found <= bag(select(oracle, query))
    else:
        assert found == bag(select(oracle, query))
    assert requests <= most


def test_solutions_without_partners_come_as_soon_as_that_is_sure(plain_shop: LiveServer) -> None:
    """Not when the whole answer is known: the labels are read at last."""
    for keyword in ("OPTIONAL", "MINUS", "FILTER NOT EXISTS"):
        pattern = f"?p :label ?l {keyword} {{ ?p :discount ?d }}"
        _, requests, first = ask(plain_shop, f"PREFIX : <{SHOP}> SELECT * {{ {pattern} }}")
        # The form, twenty pages of labels, seven of discounts.
        assert requests == 28
        assert first <= 16
