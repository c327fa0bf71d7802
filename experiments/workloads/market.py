"""Two markets: brokers with their countries, and streams of their transactions.

After the examples of the C-SPARQL paper (003, section 5).
"""

import random
from collections.abc import Iterator

from annotations.terms import Quad, Term
from experiments.workloads import named_queries

MARKETS = ("http://example.org/milan", "http://example.org/zurich")
BROKERS, EXCHANGE = "http://example.org/brokers#", "http://example.org/exchange#"
_QUERIES = named_queries("market.rq")


def brokers(count: int) -> Iterator[Quad]:
    """The countries of brokers: what does not change."""
    for number in range(count):
        country = Term(f'"C{number % 20}"')
        yield Quad(Term(f"<{BROKERS}{number}>"), Term(f"<{BROKERS}is_from>"), country)


def transactions(seed: int, brokers: int, count: int) -> Iterator[tuple[int, int, list[list[str]]]]:
    """Markets, instants in milliseconds and triples: a hundred transactions a second."""
    chance = random.Random(seed)
    for number in range(count):
        tx = f"<{EXCHANGE}tx{number}>"
        broker = f"<{BROKERS}{chance.randrange(brokers)}>"
        amount = f'"{chance.randrange(100)}"^^<http://www.w3.org/2001/XMLSchema#integer>'
        triples = [[broker, f"<{EXCHANGE}does>", tx], [tx, f"<{EXCHANGE}with>", amount]]
        yield chance.randrange(2), 10 * number, triples


def market_query(query: str, window: int) -> str:
    """``filters``, ``by market`` or ``over markets``, with windows of so many seconds."""
    common = {
        "b": BROKERS,
        "x": EXCHANGE,
        "first": MARKETS[0],
        "second": MARKETS[1],
        "window": window,
    }
    if query == "filters":
        return _QUERIES["filters"].format(**common)
    by_market = query == "by market"
    return _QUERIES["markets"].format(
        market="?market" if by_market else "",
        comma_market=", ?market" if by_market else "",
        **common,
    )
