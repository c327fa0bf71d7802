"""Facts that come later than the query."""

from datetime import timedelta
from pathlib import Path

import pytest

from annotations.labels import Expiration, Fact
from annotations.terms import Quad, iri, literal
from tests.support.live_server import START, LiveServer
from tpf_client import Client

TRAIN = iri("http://example.org/departure/1")
SIGN = Quad(TRAIN, iri("http://example.org/train#headSign"), literal("Gent"))
DELAY = Quad(TRAIN, iri("http://example.org/train#delay"), literal("300"))
QUERY = "PREFIX t: <http://example.org/train#> SELECT * { ?d t:headSign ?sign ; t:delay ?delay }"
OPTIONAL = (
    "PREFIX t: <http://example.org/train#> "
    "SELECT * { ?d t:headSign ?sign OPTIONAL { ?d t:delay ?delay } }"
)


@pytest.mark.parametrize("query", [QUERY, OPTIONAL])
@pytest.mark.parametrize("page_labels", [True, False])
def test_a_board_that_begins_empty_fills_within_the_age_of_its_pages(
    tmp_path: Path, query: str, page_labels: bool
) -> None:
    server = LiveServer(
        tmp_path, [SIGN], page_labels=page_labels, annotation="named-graph", max_age=10
    )
    published = START + timedelta(seconds=3)
    fact = Fact(DELAY, Expiration(START + timedelta(minutes=5)))
    server.clock.schedule(published, lambda: server.publish([fact]))
    with Client(server.url, session=server.session(), clock=server.clock, parallelism=0) as client:
        updates = iter(client.stream(query, keep_checking=10.0))
        first = next(updates)
        assert not any("delay" in solution for solution in first.results)
        filled = next(updates)
    server.close()
    assert [str(solution["delay"]) for solution in filled.results] == ["300"]
    assert filled.at <= published + timedelta(seconds=10.5)
