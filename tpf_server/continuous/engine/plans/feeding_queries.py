"""Queries whose results are elements of another stream."""

from collections.abc import Collection

from annotations.terms import Term
from tpf_server.continuous.engine.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.engine.plans.registered_query import RegisteredQuery


def feed(registered: RegisteredQuery, target: Term, others: Collection[RegisteredQuery]) -> None:
    """Let a query feed a stream.

    Args:
        registered: the query.
        target: the stream.
        others: all other queries.

    Raises:
        UnsupportedContinuousQueryError: it makes no triples, or it would feed itself.
    """
    if registered.query.query.form not in ("CONSTRUCT", "DESCRIBE"):
        raise UnsupportedContinuousQueryError("only CONSTRUCT or DESCRIBE can feed a stream")
    if registered.reads & _reached(target, others):
        raise UnsupportedContinuousQueryError(f"the query would feed itself through {target}")
    registered.stream = target


def _reached(target: Term, others: Collection[RegisteredQuery]) -> set[Term]:
    """The streams that elements of `target` end up in, by way of other queries."""
    reached = {target}
    grown = True
    while grown:
        grown = False
        for other in others:
            sink = other.stream
            if sink is not None and sink not in reached and other.reads & reached:
                reached.add(sink)
                grown = True
    return reached
