"""How many requests queries take, on plain fragments and with blocks of bindings."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest

from annotations.clock import ManualClock
from annotations.labels import Expiration, Fact
from annotations.terms import Quad, Triple, blank_node, iri, literal, triple_term
from tests.support.live_server import START, LiveServer
from tests.support.oracle import bag, select, store_of
from tests.support.shapes import SERVER as PLAIN
from tests.support.shapes import right, shop
from tests.support.shop import COMPARED, SHOP, SHOP_QUERIES
from tests.support.wsgi_adapter import WholeAnswer, changing
from tests.tpf_client.planner.conftest import ShapeAnswer
from tests.tpf_client.planner.conftest import ask as ask_of_shop
from tpf_client.planner.explain import explain_plan
from tpf_client.planner.leaves import Step

pytestmark = pytest.mark.xdist_group("the shop of all shapes")

PREFIX = f"PREFIX : <{SHOP}> "
BLOCKS = {"max_values": 50, "max_page_size": 1000}


@pytest.fixture(scope="module", params=["plain", "blocks"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    if request.param == "plain":
        yield request.getfixturevalue("plain_shop")
        return
    path = tmp_path_factory.mktemp(request.param)
    with LiveServer(path, shop(), live=False, server=dict(BLOCKS)) as server:
        yield server


def ask(server: LiveServer, query: str, plan: list[Step] | None = None) -> tuple[Any, int]:
    """The answer to a query, and how many requests it took."""
    found, sent, _ = ask_of_shop(server, f"{PREFIX} {query}", plan)
    return found, sent


class Ticking(ManualClock):
    """A clock that goes on whenever somebody looks."""

    def __init__(self) -> None:
        super().__init__(START)
        self._looks = count()

    def now(self) -> datetime:
        return super().now() + timedelta(milliseconds=next(self._looks))


MOST = {
    # plain, with blocks
    "star": (72, 8),
    "chain": (159, 12),
    "snowflake": (226, 19),
    "optional": (30, 5),
    "union": (23, 6),
    "filter": (229, 21),
    "distinct": (15, 6),
    "order+limit": (80, 7),
    "aggregate": (98, 13),
    "ask": (30, 5),
    "construct": (111, 13),
    "not exists": (30, 5),
    "big join": (192, 10),
    "path": (22, 4),
}


def test_shapes_of_queries(
    server: LiveServer, oracle: pyoxigraph.Store, shape_answer: ShapeAnswer
) -> None:
    """The answers are another engine's; the requests are as few as they are said to be."""
    blocks = server.settings.max_values > 0
    sent = {}
    for name in MOST:
        if blocks:
            found, sent[name] = ask(server, SHOP_QUERIES[name])
        else:
            found, sent[name], _ = shape_answer(name)
        assert right(oracle, name, found), name
    assert {name: n for name, n in sent.items() if n > MOST[name][blocks]} == {}
    assert sum(sent[name] for name in COMPARED) <= (91 if blocks else 922)


def test_blocks_hold_no_more_rows_than_the_server_takes(tmp_path: Path) -> None:
    data = list(shop(2_000))
    server = LiveServer(tmp_path, data, live=False, server={"max_values": 7}, page_size=20)
    query = "SELECT * { ?o :product ?p ; :price ?x . ?p :producer ?r ; :price ?w }"
    found, _ = ask(server, query)
    assert found == bag(select(store_of(data), PREFIX + query))
    server.close()


def test_a_page_without_freshness_is_asked_for_once_in_a_query(tmp_path: Path) -> None:
    """Of servers that say nothing about freshness; a further query asks again."""
    server = LiveServer(tmp_path, shop(2_000), clock=Ticking(), live=False, page_size=20)

    def silent(_: dict[str, Any], answer: WholeAnswer) -> WholeAnswer:
        status, headers, body = answer
        silenced = ("cache-control", "expires", "etag")
        return status, [h for h in headers if h[0].lower() not in silenced], body

    server.app = changing(server.app, silent)
    query = "SELECT * { ?o :product ?p ; :price ?x . ?p :producer :producer1 ; :price ?w }"
    with server.client() as client:
        for _ in range(2):
            del server.log[:]
            assert len(list(client.select(PREFIX + query))) > 0
            paths = Counter(path for _, path in server.log)
            assert len(paths) > 3
            assert max(paths.values()) == 1
    server.close()


@pytest.mark.parametrize(
    ("query", "most"),
    [
        # Filters run before lookups.
        # The form, three first pages, a page per product; then one per product that is light.
        ("SELECT * { ?p :producer :producer5 ; :price ?w . ?r :product ?p FILTER(?w < 200) }",
         (50, 6)),
        # An IRI that a filter names is as good as one in the pattern.
        ("SELECT * { ?p :producer ?x ; :price ?w FILTER(?x = :producer5 && ?w < 99) }", (41, 4)),
        ("SELECT * { ?p :producer ?x ; :price ?w FILTER(?x IN (:producer5, :producer6)) }",
         (71, 6)),
        # Before the optional part, which not all need.
        ("SELECT * { ?p :producer :producer5 ; :price ?w OPTIONAL { ?r :product ?p } "
         "FILTER(?w < 200) }", (50, 6)),
        # What cannot matter is not looked up: every country, then a reviewer of each, or another.
        ("SELECT DISTINCT ?c { ?q :country ?c . ?r :reviewer ?q }", (20, 6)),
        # The first block, 48 of the 52 in Belgium, has 1,065 matches: 65 are on a second page.
        ("SELECT ?q { ?q :country :BE { SELECT DISTINCT ?q { ?q :country ?c . ?r :reviewer ?q } } "
         "}", (61, 8)),
        # A union with few solutions comes before a long pattern.
        ("SELECT * { { ?p :feature :feature3 ; :category :category9 } UNION "
         "{ ?p :feature :feature4 ; :producer :producer5 } ?o :product ?p }", (7, 7)),
    ],
)  # fmt: skip
def test_requests_are_few(
    server: LiveServer, oracle: pyoxigraph.Store, query: str, most: tuple[int, int]
) -> None:
    found, sent = ask(server, query)
    assert found == bag(select(oracle, PREFIX + query))
    assert sent <= most[server.settings.max_values > 0]


def _limited(server: LiveServer, store: pyoxigraph.Store, query: str, limit: int) -> int:
    """How many requests so many solutions of a query take."""
    found, sent = ask(server, f"SELECT * {{ {query} }} LIMIT {limit}")
    everything = bag(select(store, f"{PREFIX} SELECT * {{ {query} }}"))
    assert found.total() == min(limit, everything.total())
    assert not found - everything
    return sent


@pytest.mark.parametrize(
    ("query", "limit", "most"),
    [
        # Keys are asked for as long as they lead to solutions, though the first few do not.
        # Comunica: 10, 12, 15.
        ("?v0 :category ?v1 . ?v2 :product ?v0 FILTER NOT EXISTS { ?v2 :days ?there }", 3, 18),
        ("?v0 :days ?v1 . ?v0 :days ?v2 FILTER NOT EXISTS { ?from :label ?v0 }", 10, 13),
        ("?v0 :helpful ?v1 . ?v0 :product ?v2 . ?v2 :producer ?v3 "
         "MINUS { ?v2 :feature :feature95 }", 3, 25),
        # Pages of both sides have many pairs. Comunica: 20, 28.
        ("?v0 :price ?v1 . ?v0 :days ?v2 . ?v0 :days ?v3", 100, 24),
        ("?v1 :product ?v0 . ?v1 :vendor ?v2", 100, 31),
        # Nineteen keys, of which seven have no discount; eight pages. Comunica: 6.
        ("?v0 :feature :feature22 . ?v0 :discount ?v1", 10, 9),
        # Few of very many matches: the price of each is asked for.
        ("?v0 :price ?v1 . ?v0 :feature :feature19 OPTIONAL { ?v0 :price ?there }", 10, 16),
        ("?v0 :days ?v1 . ?v0 :product :product1475 OPTIONAL { ?v0 :price ?there }", 100, 16),
        # A filter that lets nothing through: we risk a few keys on top of the pages, which Comunica
        # reads: 98, 233, 258.
        ("?p :label ?l ; :price ?e FILTER(?e > 2000)", 5, 104),
        ("?r :helpful ?h ; :rating ?n FILTER(?n < 0)", 5, 249),
        ("?o :vendor :vendor3 ; :product ?p . ?p :price ?e FILTER(?e > 2000)", 5, 276),
        # It is known of each solution by itself that nothing takes it away. Comunica: 5.
        ("?r :title ?t FILTER NOT EXISTS { ?r :reviewer :person41 }", 3, 5),
        # What the filter can test is read first, although there is more of it. Comunica: 7, 64.
        ("?o :vendor ?v ; :price ?e FILTER(?e < 50)", 1, 7),
        ('?r :title ?t ; :product ?p FILTER(REGEX(STR(?p), "12$"))', 10, 64),
    ],
)  # fmt: skip
def test_a_limit_is_met_by_keys_or_by_pages_whichever_take_fewer_requests(
    plain_shop: LiveServer, oracle: pyoxigraph.Store, query: str, limit: int, most: int
) -> None:
    assert _limited(plain_shop, oracle, query, limit) <= most


@pytest.mark.parametrize("limit", [3, 5, 20])
def test_pages_without_matches_are_given_up_for_keys(tmp_path: Path, limit: int) -> None:
    """All partners of the first matches lie at the end of a long fragment."""
    p, q = iri(f"{SHOP}p"), iri(f"{SHOP}q")
    names = [iri(f"{SHOP}s{number}") for number in range(10_000, 16_000)]
    quads = [Quad(each, q, literal("x")) for each in names]
    quads += [Quad(each, p, literal("x")) for each in names[-1_000:]]
    server = LiveServer(tmp_path, quads, live=False, server=dict(PLAIN))
    sent = _limited(server, store_of(quads), "?s :p ?o ; :q ?x", limit)
    server.close()
    # The form and the first pages; by keys alone one for each; the fragments have 60 and 10 pages.
    assert sent <= 3 + 5 * limit


@pytest.mark.parametrize(
    ("query", "comunica"),
    [
        ("VALUES (?p ?m) { (:product1 UNDEF) (UNDEF :producer3) } ?p :label ?l ; :producer ?m", 25),
        ("VALUES (?c ?m) { (:category24 UNDEF) (UNDEF :producer2) } "
         "?p :category ?c ; :producer ?m ; :label ?l", 63),
        ("VALUES (?c ?p) { (:category44 UNDEF) (:category34 :product586) (UNDEF :product425) } "
         "?p :category ?c", 7),
        ("VALUES (?r ?p) { (UNDEF :product19) (:review3325 UNDEF) (:review2613 :product883) } "
         "?p :producer :producer31 . ?r :product ?p", 11),
        ("VALUES (?r ?p) { (UNDEF :product19) (:review3325 UNDEF) } "
         "OPTIONAL { ?r :product ?p }", 6),
        ("VALUES (?c ?r) { (UNDEF :review4175) (:SE :review2464) (:DE :review9852) } "
         "?r :reviewer ?p ; :title ?t . ?q :knows ?p . ?p :country ?c", 27),
    ],
)  # fmt: skip
def test_values_that_leave_variables_open_are_looked_up(
    plain_shop: LiveServer, oracle: pyoxigraph.Store, query: str, comunica: int
) -> None:
    """No more requests than Comunica, which answers row by row."""
    found, sent = ask(plain_shop, f"SELECT * {{ {query} }}")
    assert found == bag(select(oracle, f"{PREFIX} SELECT * {{ {query} }}"))
    assert sent <= comunica


@pytest.mark.parametrize(
    ("query", "limit", "most"),
    [
        # The form, two first pages, and a comment of each.
        ("SELECT * { ?p :label ?l OPTIONAL { ?p :discount ?c } }", 5, (8, 4)),
        ("SELECT * { ?p :producer :producer5 ; :label ?l "
         "OPTIONAL { ?p :discount ?c } OPTIONAL { ?p :price ?w } }", 5, (10, 6)),
        ("SELECT * { { ?p :label ?l OPTIONAL { ?p :discount ?c } } UNION { ?p :name ?l } }", 4,
         (8, 5)),
        ("SELECT * { { SELECT ?p { ?p :label ?l } LIMIT 3 } ?p :label ?w }", 9, (5, 3)),
        ("SELECT ?w ?c { ?p :producer :producer5 ; :price ?w OPTIONAL { ?p :discount ?c } } "
         "ORDER BY ?w", 5, (42, 5)),
    ],
)  # fmt: skip
def test_limits_spare_what_optional_parts_would_ask(
    server: LiveServer, oracle: pyoxigraph.Store, query: str, limit: int, most: tuple[int, int]
) -> None:
    found, sent = ask(server, f"{query} LIMIT {limit}")
    # Which solutions a LIMIT lets through is free, but for those of a sub-query without its own.
    whole = query.replace("LIMIT 3", "")
    everything = bag(select(oracle, PREFIX + whole))
    assert found.total() == min(limit, 3 if whole != query else limit)
    assert not found - everything
    if "ORDER BY" in query:
        assert found == bag(select(oracle, f"{PREFIX} {query} LIMIT {limit}"))
    assert sent <= most[server.settings.max_values > 0]


def lying(server: LiveServer, counts: dict[str, tuple[str, str]]) -> None:
    """Let a server tell other counts than there are, for fragments whose URL holds a text."""

    def lie(environ: dict[str, Any], answer: WholeAnswer) -> WholeAnswer:
        status, headers, body = answer
        query = environ["QUERY_STRING"]
        for text, (true, told) in counts.items():
            if text in query and "subject" not in query and "object" not in query:
                assert true.encode() in body
                body = body.replace(true.encode(), told.encode())
        return status, headers, body

    server.app = changing(server.app, lie)


@pytest.mark.parametrize(
    ("query", "most"),
    [
        # The form, two first pages, seven more in vain; then the offers of each product.
        ("SELECT * { ?o :product ?p . ?p :category :category25 }", 49),
        ("SELECT * { ?p :category :category25 OPTIONAL { ?o :product ?p } }", 49),
        (
            "SELECT ?p (COUNT(?o) AS ?n) { ?o :product ?p . ?p :category :category25 } GROUP BY ?p",
            49,
        ),
        # What is long in truth, and has no alternative, is read to its end, and no page twice.
        ("SELECT (COUNT(*) AS ?n) { ?o :product ?p }", 175),
    ],
)
def test_a_plan_that_rests_on_a_lie_is_given_up(
    tmp_path: Path, oracle: pyoxigraph.Store, query: str, most: int
) -> None:
    """A fragment of 174 pages of which its server says that it has one."""
    server = LiveServer(tmp_path, shop(), live=False, server=dict(PLAIN))
    lying(server, {"product": ("17307", "00020")})
    found, sent = ask(server, query)
    assert found == bag(select(oracle, PREFIX + query))
    assert len({path for _, path in server.log}) == sent
    assert sent <= most
    server.close()


def test_the_plan_says_what_was_expected_and_done(server: LiveServer) -> None:
    plan: list[Step] = []
    _, sent = ask(server, SHOP_QUERIES["chain"], plan)
    lines = explain_plan(plan).splitlines()
    assert [line.partition(" <")[0] for line in lines] == [
        "1. scan ?o", "2. lookup ?o", "3. lookup ?p", "4. lookup ?m",
    ]  # fmt: skip
    assert "expected: 129 matches on 2 pages  done: 2 pages, 129 rows" in lines[0]
    if server.settings.max_values:
        assert lines[1].endswith(
            "expected: 17307 matches on 19 pages  done: 129 keys by 3 requests, 129 rows"
        )
    else:
        assert lines[1].endswith("done: 129 keys by 129 requests, 129 rows")
        pages = [each.fragment or (each.lookup and each.lookup.whole) for each in plan]
        # Of what is asked by key, the first page was read all the same: it tells how much there is.
        keys = [each.lookup.requests + 1 for each in plan if each.lookup and not each.lookup.whole]
        assert 1 + sum(each.pages for each in pages if each) + sum(keys) == sent


def test_a_continuous_query_packs_its_blocks_anew(tmp_path: Path) -> None:
    """However often the trains on the board change, they are asked for in few blocks."""
    server = LiveServer(
        tmp_path, live=True, page_size=20, server={"max_values": 5, "max_page_size": 20}, max_age=30
    )
    t, minute = "http://example.org/", timedelta(minutes=1)

    late = Expiration(START + 1000 * minute)
    server.publish(
        Fact(Quad(iri(f"{t}{n}"), iri(t + "delay"), literal(f"late {n}")), late) for n in range(500)
    )
    # Trains now … now + 11 stand on the board; every train has a delay.
    server.publish_rounds(
        minute,
        lambda now: [Quad(iri(f"{t}{now + n}"), iri(t + "board"), literal("1")) for n in range(12)],
    )
    sent = []
    with server.client() as client:
        query = f"SELECT ?s ?d {{ ?s <{t}board> ?b ; <{t}delay> ?d }}"
        for number, update in enumerate(client.stream(query, until=START + 25 * minute)):
            now = round((update.at - START) / minute)
            names = {str(row["d"]) for row in update.results}
            assert names == {f"late {now + n}" for n in range(12)}
            assert number == now
            sent.append(len(server.log))
            del server.log[:]
    server.close()
    assert len(sent) >= 20
    # The board, and its twelve trains twice a minute, in twice as many blocks as there must be.
    assert max(sent[1:]) <= 2 * (1 + 2 * 3) + 2


@pytest.mark.parametrize("form", ["ASK", "SELECT ?p"])
def test_what_no_triple_can_be_is_not_asked_for(server: LiveServer, form: str) -> None:
    limit = "" if form == "ASK" else "LIMIT 1"
    found, _ = ask(server, f'{form} {{ VALUES ?l {{ "x" }} ?l :label ?p }} {limit}')
    assert not found


def test_triple_terms_with_blank_nodes_are_looked_up(tmp_path: Path) -> None:
    s, p, q = (iri(SHOP + name) for name in "spq")
    term = triple_term(Triple(blank_node("b"), p, s))
    quads = [Quad(iri(f"{SHOP}s{number}"), q, literal("x")) for number in range(50)]
    quads += [Quad(s, p, term), Quad(s, q, term)]
    with LiveServer(
        tmp_path, quads, live=False, page_size=5, server={"max_page_size": 5, "max_values": 0}
    ) as server:
        found, sent = ask(server, "SELECT ?t { :s :p ?o . ?t :q ?o }")
    assert found == {frozenset({("?t", s)}): 1}
    assert sent == 4
