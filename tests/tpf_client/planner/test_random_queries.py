"""Random queries over the real server, with pages and blocks of any size, beside pyoxigraph."""

import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyoxigraph as ox
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Quad
from tests.support.examples import examples
from tests.support.judges import Answer, judged
from tests.support.live_server import LiveServer
from tests.support.oracle import store_of
from tests.support.random_queries import PREFIX, VARIABLES, graphs, groups, queries
from tests.support.random_sparql import QueryWriter, random_quads, randoms
from tests.support.rounds import Rounds
from tpf_client import Client, Solutions
from tpf_client.errors import QuerySyntaxError, UnsupportedQueryError
from tpf_client.sparql.parser import parse_query

Rows = list[tuple[str | None, ...]]

servers = st.sampled_from(
    [
        {"page_size": 2, "max_page_size": 2, "max_values": 0},
        {"page_size": 1, "max_page_size": 3, "max_values": 2},
        {"page_size": 3, "max_page_size": 3, "max_values": 50},
        {"page_size": 100, "max_page_size": 100, "max_values": 0},
    ]
)


def _ask(client: Client, query: str) -> Rows | bool | None:
    """The answer; ``None`` where this text is no query for us."""
    try:
        answer = client.query(query)
    except (QuerySyntaxError, UnsupportedQueryError):
        return None
    if isinstance(answer, Solutions):
        # SELECT *: everybody names the variables in another order.
        places = [answer.variables.index(name) for name in sorted(answer.variables)]
        return [tuple(row.row[place] for place in places) for row in answer]
    assert isinstance(answer, bool)
    return answer


def _expected(store: Any, query: str) -> Rows | bool:
    result = store.query(query)
    if not hasattr(result, "variables"):
        return bool(result)
    names = sorted(each.value for each in result.variables)
    return [
        tuple(None if row[name] is None else str(row[name]) for name in names) for row in result
    ]


def _serve(folder: str, quads: frozenset[Quad], server: Mapping[str, int]) -> LiveServer:
    rest = {name: value for name, value in server.items() if name != "page_size"}
    return LiveServer(
        Path(folder), sorted(quads), live=False, page_size=server["page_size"], server=rest
    )


TOGETHER = 10
"""How many queries of all kinds are asked of one server."""


def _answer(client: Client, text: str) -> Answer | None:
    """What the client answers; ``None`` where this is no query for us."""
    try:
        answer = client.query(text)
        if isinstance(answer, Solutions):
            return Counter(row.row for row in answer)
    except (QuerySyntaxError, UnsupportedQueryError):
        return None
    if isinstance(answer, bool):
        return answer
    triples = ox.parse(answer.serialize(format="nt"), format=ox.RdfFormat.N_TRIPLES)
    return Counter(tuple(map(str, (t.subject, t.predicate, t.object))) for t in triples)


@examples(100 // TOGETHER)
@given(random=randoms, others=st.lists(queries, max_size=6), server=servers)
def test_all_of_sparql(random: Random, others: list[str], server: Mapping[str, int]) -> None:
    quads = random_quads(random)
    with tempfile.TemporaryDirectory() as folder:
        running = _serve(folder, quads, server)
        # Answers in any order, or one after the other.
        with Rounds(random).counted(), running.client(parallelism=random.choice((0, 8))) as client:
            for number in range(TOGETHER + len(others)):
                text = others[number] if number < len(others) else QueryWriter(random).query()
                found = _answer(client, text)
                if found is not None:
                    # The specification does not say all.
                    with suppress(UnsupportedQueryError):
                        assert found == judged(parse_query(text), text, quads), text
        running.close()


orders = st.lists(
    st.tuples(st.sampled_from(VARIABLES), st.sampled_from(["ASC", "DESC"])), min_size=1, max_size=3
)


@examples(10)
@given(quads=graphs, group=groups, order=orders, limit=st.integers(0, 6), server=servers)
def test_order_and_limit(
    quads: frozenset[Quad],
    group: str,
    order: list[tuple[str, str]],
    limit: int,
    server: Mapping[str, int],
) -> None:
    """The order of the sorting keys is pyoxigraph's; a part of the answer is a part of it."""
    keys = " ".join(f"{way}({name})" for name, way in order)
    names = sorted({name for name, _ in order})
    query = f"{PREFIX} SELECT {' '.join(names)} WHERE {{ {group} }} ORDER BY {keys}"
    with tempfile.TemporaryDirectory() as folder:
        running = _serve(folder, quads, server)
        with running.client() as client:
            found = _ask(client, query)
            if found is not None:
                everything = _expected(store_of(quads), query)
                assert isinstance(everything, list)
                assert isinstance(found, list)
                first = names.index(order[0][0])
                assert _kinds(found, first) == _kinds(everything, first)
                assert Counter(found) == Counter(everything)
                assert _ask(client, f"{query} LIMIT {limit}") == found[:limit]
                part = _ask(client, f"{query.partition(' ORDER BY')[0]} LIMIT {limit}")
                assert isinstance(part, list)
                assert len(part) == min(limit, len(everything))
                assert not Counter(part) - Counter(everything)
        running.close()


def _kinds(rows: Any, place: int) -> list[tuple[int, ...]]:
    """What section 15.1 says of the order: nothing, blank nodes, IRIs, literals."""

    def kind(term: str | None) -> int:
        return 0 if term is None else 1 if term[0] == "_" else 2 if term[0] == "<" else 3

    return [(kind(row[place]),) for row in rows]
