"""The query streamer on a server in process: one thread, one manual clock."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from annotations.instants import instant_term
from tests.support.served import BASE, Served
from tests.support.wsgi_adapter import WsgiAdapter, WsgiSession
from tpf_client.dataflow.build.builder import build_query
from tpf_client.dataflow.operators.basic import Output
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher
from tpf_client.planner.evaluation import Evaluation
from tpf_client.planner.leaves import FragmentLeaves
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.parser import parse_query
from tpf_client.streaming.streamer import Streamer, StreamingPlan, Tick


def ticks(served: Served, path: str, query: str, until: datetime) -> Iterator[Tick]:
    """Return every evaluation of a continuous query, also those without a change."""
    parsed = parse_query(query)

    def build(leaves: FragmentLeaves, evaluation: Evaluation) -> Output:
        typed = TypedTerms(evaluation.dictionary)
        now = typed[evaluation.dictionary.encode(instant_term(evaluation.source.now()))]
        assert isinstance(now, DateTime)
        return build_query(parsed, leaves, evaluation.dataflow, Environment(typed, now))

    session = WsgiSession()
    session.mount(BASE, WsgiAdapter(served.app, served.requests))
    fetcher = ThreadedFetcher(clock=served.clock, session=session, parallelism=0)
    streamer = Streamer(
        fetcher,
        [BASE + path],
        build,
        served.clock,
        StreamingPlan(until=until, keep_checking=timedelta(minutes=1), quiet=True),
    )
    try:
        yield from streamer.ticks()
    finally:
        fetcher.close()
