"""How many requests queries take, on plain fragments and with blocks of bindings."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest

from annotations.clock import ManualClock
from annotations.labels import Expiration, Fact
from annotations.terms import Quad, iri, literal
from tests.support.live_server import START, LiveServer
from tests.support.oracle import select, store_of
from tests.support.shop import PREFIX, QUERIES, TARGETED, shop
from tpf_client import Client, Solutions
from tpf_client.planner.explain import explain_plan
from tpf_client.planner.leaves import Step

PLAIN = {"max_values": 0, "max_page_size": 100}
BLOCKS = {"max_values": 50, "max_page_size": 1000}


@pytest.fixture(scope="module")
def oracle() -> pyoxigraph.Store:
    return store_of(shop())


@pytest.fixture(scope="module", params=["plain", "blocks"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    settings = PLAIN if request.param == "plain" else BLOCKS
    path = tmp_path_factory.mktemp(request.param)
    server = LiveServer(path, shop(), live=False, server=dict(settings))
    yield server
    server.close()


def ask(server: LiveServer, query: str, plan: list[Step] | None = None) -> tuple[Any, int]:
    """The answer to a query, and how many requests it took."""
    del server.log[:]
    with Client(server.url, session=server.session(), clock=server.clock,
                parallelism=0) as client:  # fmt: skip
        answer = client.query(PREFIX + query, plan=plan)
        found = list(answer) if isinstance(answer, Solutions) else answer
    return found, len(server.log)


def rows(solutions: Iterable[Any]) -> Counter[frozenset[tuple[str, str]]]:
    """Solutions as a multiset of terms as the server wrote them."""
    return Counter(
        frozenset(
            (name, term)
            for name, term in zip(each._variables, each.row, strict=True)
            if term is not None
        )
        for each in solutions
    )


class Ticking(ManualClock):
    """A clock that goes on whenever somebody looks."""

    def __init__(self) -> None:
        super().__init__(START)
        self._looks = count()

    def now(self) -> datetime:
        return super().now() + timedelta(milliseconds=next(self._looks))


MOST = {
    # plain, with blocks
    "star": (68, 8),
    "chain": (106, 14),
    "snowflake": (274, 17),
    "optional": (36, 5),
    "union": (35, 8),
    "filter": (139, 9),
    "distinct": (137, 10),
    "order": (43, 6),
    "aggregate": (121, 8),
    "ask": (3, 3),
    "construct": (130, 17),
    "notexists": (85, 6),
    "bigjoin": (174, 23),
    "path": (2, 2),
}


def test_shapes_of_queries(server: LiveServer, oracle: pyoxigraph.Store) -> None:
    """The answers are another engine's; the requests are as few as they are said to be."""
    blocks = server.settings.max_values > 0
    sent = {}
    for name, query in QUERIES.items():
        found, sent[name] = ask(server, query)
        expected: Any = oracle.query(PREFIX + query)
        if name == "ask":
            assert found is bool(expected)
        elif name == "construct":
            assert len(found) == len({str(each) for each in expected})
        elif name == "aggregate":
            assert len(found) == len(list(expected))
        elif name != "order":
            assert rows(found) == Counter(
                frozenset((key, term) for key, term in row.items())
                for row in select(oracle, PREFIX + query)
            )
    assert {name: n for name, n in sent.items() if n > MOST[name][blocks]} == {}
    assert sum(sent[name] for name in TARGETED) <= (120 if blocks else 933)


def test_blocks_hold_no_more_rows_than_the_server_takes(tmp_path: Path) -> None:
    data = list(shop(0.02))
    server = LiveServer(tmp_path, data, live=False, server={"max_values": 7}, page_size=20)
    query = "SELECT * { ?o :product ?p ; :price ?x . ?p :producer ?r ; :weight ?w }"
    found, _ = ask(server, query)
    expected = Counter(frozenset(row.items()) for row in select(store_of(data), PREFIX + query))
    assert rows(found) == expected
    server.close()


def test_a_page_without_freshness_is_asked_for_once_in_a_query(tmp_path: Path) -> None:
    """Of servers that say nothing about freshness; a further query asks again."""
    server = LiveServer(tmp_path, shop(0.02), clock=Ticking(), live=False, page_size=20)
    app = server.app.wsgi_app

    def silent(environ: Any, start: Any) -> Any:
        def without(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            silenced = ("cache-control", "expires", "etag")
            return start(status, [h for h in headers if h[0].lower() not in silenced], *more)

        return app(environ, without)

    server.app.wsgi_app = silent  # type: ignore[assignment, method-assign]
    query = "SELECT * { ?o :product ?p ; :price ?x . ?p :producer :producer1 ; :weight ?w }"
    with Client(server.url, session=server.session(), clock=server.clock, parallelism=0) as client:
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
        # The form, three first pages, a page per product; then one per product that is light.
        ("?p :producer :producer5 ; :weight ?w . ?r :reviewFor ?p FILTER(?w < 200)", (60, 8)),
        # An IRI that a filter names is as good as one in the pattern.
        ("?p :producer ?x ; :weight ?w FILTER(?x = :producer5 && ?w < 9)", (54, 6)),
        ("?p :producer ?x ; :weight ?w FILTER(?x IN (:producer5, :producer6))", (110, 8)),
        # Before the optional part, which not all need.
        ("?p :producer :producer5 ; :weight ?w OPTIONAL { ?r :reviewFor ?p } FILTER(?w < 200)",
         (60, 8)),
    ],
)  # fmt: skip
def test_filters_run_before_lookups(
    server: LiveServer, oracle: pyoxigraph.Store, query: str, most: tuple[int, int]
) -> None:
    found, sent = ask(server, f"SELECT * {{ {query} }}")
    expected = select(oracle, f"{PREFIX} SELECT * {{ {query} }}")
    assert rows(found) == Counter(frozenset(row.items()) for row in expected)
    assert sent <= most[server.settings.max_values > 0]


@pytest.mark.parametrize(
    ("query", "most"),
    [
        # Every country, then a reviewer of each, or another one.
        ("SELECT DISTINCT ?c { ?q :country ?c . ?r :reviewer ?q }", (37, 7)),
        # The offers of the lightest products, until there are enough.
        ("SELECT ?w ?o { ?p :producer :producer5 ; :weight ?w . ?o :product ?p } "
         "ORDER BY ?w LIMIT 3", (36, 6)),
        ("SELECT ?w ?o { ?p :producer :producer5 ; :weight ?w . ?o :product ?p } "
         "ORDER BY DESC(?w * 2) ?p LIMIT 3 OFFSET 2", (38, 6)),
    ],
)  # fmt: skip
def test_what_cannot_matter_is_not_looked_up(
    server: LiveServer, oracle: pyoxigraph.Store, query: str, most: tuple[int, int]
) -> None:
    found, sent = ask(server, query)
    expected = select(oracle, PREFIX + query)
    first = query.split()[2 if "DISTINCT" in query else 1]
    assert Counter(
        dict(zip(each._variables, each.row, strict=True)).get(first) for each in found
    ) == Counter(row[first] for row in expected)
    assert sent <= most[server.settings.max_values > 0]


@pytest.mark.parametrize(
    ("query", "limit", "most"),
    [
        # The form, two first pages, and a comment of each.
        ("SELECT * { ?p :label ?l OPTIONAL { ?p :comment ?c } }", 5, (8, 4)),
        ("SELECT * { ?p :producer :producer5 ; :label ?l "
         "OPTIONAL { ?p :comment ?c } OPTIONAL { ?p :weight ?w } }", 5, (12, 6)),
        ("SELECT * { { ?p :label ?l OPTIONAL { ?p :comment ?c } } UNION { ?p :name ?l } }", 4,
         (8, 5)),
        ("SELECT * { { SELECT ?p { ?p :label ?l } LIMIT 3 } ?p :label ?w }", 9, (6, 4)),
        ("SELECT ?w ?c { ?p :producer :producer5 ; :weight ?w OPTIONAL { ?p :comment ?c } } "
         "ORDER BY ?w", 5, (38, 5)),
    ],
)  # fmt: skip
def test_limits_spare_what_optional_parts_would_ask(
    server: LiveServer, oracle: pyoxigraph.Store, query: str, limit: int, most: tuple[int, int]
) -> None:
    found, sent = ask(server, f"{query} LIMIT {limit}")
    # Which solutions a LIMIT lets through is free, but for those of a sub-query without its own.
    whole = query.replace("LIMIT 3", "")
    everything = Counter[frozenset[tuple[str, str]]](
        frozenset(r.items()) for r in select(oracle, PREFIX + whole)
    )
    assert len(found) == min(limit, 3 if whole != query else limit)
    assert not rows(found) - everything
    if "ORDER BY" in query:
        expected = select(oracle, f"{PREFIX} {query} LIMIT {limit}")
        assert rows(found) == Counter(frozenset(row.items()) for row in expected)
    assert sent <= most[server.settings.max_values > 0]


def test_a_union_with_few_solutions_comes_before_a_long_pattern(
    server: LiveServer, oracle: pyoxigraph.Store
) -> None:
    query = (
        "SELECT * { { ?p :feature :feature3 ; :category :category9 } UNION "
        "{ ?p :feature :feature4 ; :producer :producer5 } ?o :product ?p }"
    )
    found, sent = ask(server, query)
    expected = select(oracle, PREFIX + query)
    assert rows(found) == Counter(frozenset(row.items()) for row in expected)
    assert sent <= 9


def lying(server: LiveServer, counts: dict[str, tuple[str, str]]) -> None:
    """Let a server tell other counts than there are, for fragments whose URL holds a text."""
    app = server.app.wsgi_app

    def answer(environ: Any, start: Any) -> Any:
        body = b"".join(app(environ | {"HTTP_ACCEPT_ENCODING": "identity"}, start))
        query = environ["QUERY_STRING"]
        for text, (true, told) in counts.items():
            if text in query and "subject" not in query and "object" not in query:
                assert true.encode() in body
                body = body.replace(true.encode(), told.encode())
        return [body]

    server.app.wsgi_app = answer  # type: ignore[assignment, method-assign]


@pytest.mark.parametrize(
    ("query", "most"),
    [
        # The form, two first pages, seven more in vain; then the offers of each product.
        ("SELECT * { ?o :product ?p . ?p :category :category5 }", 42),
        ("SELECT * { ?p :category :category5 OPTIONAL { ?o :product ?p } }", 42),
        (
            "SELECT ?p (COUNT(?o) AS ?n) { ?o :product ?p . ?p :category :category5 } GROUP BY ?p",
            42,
        ),
        # What is long in truth, and has no alternative, is read to its end, and no page twice.
        ("SELECT (COUNT(*) AS ?n) { ?o :product ?p }", 71),
    ],
)
def test_a_plan_that_rests_on_a_lie_is_given_up(
    tmp_path: Path, oracle: pyoxigraph.Store, query: str, most: int
) -> None:
    """A fragment of 70 pages of which its server says that it has one."""
    server = LiveServer(tmp_path, shop(), live=False, server=dict(PLAIN))
    lying(server, {"product": ("7000", "0020")})
    found, sent = ask(server, query)
    expected = select(oracle, PREFIX + query)
    assert rows(found) == Counter(frozenset(row.items()) for row in expected)
    assert len({path for _, path in server.log}) == sent
    assert sent <= most
    server.close()


def test_the_plan_says_what_was_expected_and_done(server: LiveServer) -> None:
    plan: list[Step] = []
    _, sent = ask(server, QUERIES["chain"], plan)
    lines = explain_plan(plan).splitlines()
    assert [line.partition(" <")[0] for line in lines] == [
        "1. scan ?o", "2. lookup ?o", "3. lookup ?p", "4. lookup ?r",
    ]  # fmt: skip
    assert "expected: 156 matches on 2 pages  done: 2 pages, 156 rows" in lines[0]
    if server.settings.max_values:
        assert lines[1].endswith(
            "expected: 7000 matches on 8 pages  done: 156 keys by 4 requests, 156 rows"
        )
    else:
        assert lines[1].endswith("done: 156 keys by 0 requests and 70 pages, 156 rows")
        pages = [each.fragment or (each.lookup and each.lookup.whole) for each in plan]
        assert 1 + sum(each.pages for each in pages if each) == sent


def test_a_continuous_query_packs_its_blocks_anew(tmp_path: Path) -> None:
    """However often the trains on the board change, they are asked for in few blocks."""
    server = LiveServer(
        tmp_path, live=True, page_size=20, server={"max_values": 5, "max_page_size": 20}, max_age=30
    )
    t, minute = "http://example.org/", timedelta(minutes=1)

    def publish(now: int) -> None:
        """Trains now … now + 11 stand on the board; every train has a delay."""
        end = Expiration(START + (now + 1) * minute)
        late = Expiration(START + 1000 * minute)
        facts = [
            Fact(Quad(iri(f"{t}{now + n}"), iri(t + "board"), literal("1")), end) for n in range(12)
        ]
        if now == 0:
            facts += [
                Fact(Quad(iri(f"{t}{n}"), iri(t + "delay"), literal(f"late {n}")), late)
                for n in range(500)
            ]
        server.publish(facts)

    for now in range(30):
        server.clock.schedule(START + now * minute, lambda now=now: publish(now))
    server.clock.advance_to(START)
    sent = []
    with Client(server.url, session=server.session(), clock=server.clock, parallelism=0) as client:
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
