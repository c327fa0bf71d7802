"""Puts continuous queries into the server, where the setting ``continuous`` asks for them."""

from collections.abc import Iterable

from flask import Blueprint

from annotations.clock import Clock
from annotations.terms import Term
from tpf_server.cqels.engine import Engine
from tpf_server.cqels.service import ContinuousService
from tpf_server.cqels.static_data import StoreGraph
from tpf_server.cqels.web import continuous_blueprint
from tpf_server.fragments.dataset import Dataset
from tpf_server.settings import Settings


def continuous_queries(settings: Settings, datasets: Iterable[Dataset], clock: Clock) -> Blueprint:
    """The rules of ``/streams`` and ``/queries``.

    The static data of a query are the default graphs of all datasets together; ``GRAPH`` names one
    dataset by its URL.

    Args:
        settings: the server's settings.
        datasets: whose static quads queries may use.
        clock: what the time is, for elements without a timestamp.
    """
    # So that a stream is called by its URL.
    engine = Engine(base=f"{settings.base}streams/")
    for dataset in datasets:
        if dataset.static is not None:
            graph = StoreGraph(dataset.static)
            engine.static.attach(graph)
            engine.static.attach(graph, Term(f"<{settings.base}{dataset.settings.name}>"))
    return continuous_blueprint(
        ContinuousService(engine, clock),
        token=settings.publish_token or None,
        max_body=settings.max_body,
    )
