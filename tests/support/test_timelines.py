"""Everything that can happen happens in some of the timelines that tests play."""

from datetime import datetime

import pytest
from hypothesis import HealthCheck, Phase, find, settings

from annotations.labels import Fact
from annotations.terms import Term
from tests.support.timelines import Timeline, timelines


def _changes(timeline: Timeline) -> list[tuple[Fact, Fact, datetime]]:
    """Pair each fact with the next one of its key, and the instant."""
    last: dict[tuple[Term, Term, Term], Fact] = {}
    found = []
    for at, facts in timeline.batches:
        for one in facts:
            key = (one.quad.subject, one.quad.predicate, one.quad.graph)
            if key in last:
                found.append((last[key], one, at))
            last[key] = one
    return found


@pytest.mark.parametrize(
    "happens",
    [
        lambda t: any(a.quad == b.quad and a.valid_at(at) for a, b, at in _changes(t)),
        lambda t: any(a.quad != b.quad and a.valid_at(at) for a, b, at in _changes(t)),
        lambda t: any(
            a.quad != b.quad and a.label and a.label.end == at for a, b, at in _changes(t)
        ),
        lambda t: any(a.label and a.label.end < at for a, _, at in _changes(t)),
        lambda t: (
            {quad.predicate for quad in t.static}
            & {one.quad.predicate for batch in t.batches for one in batch.facts}
        ),
        lambda t: len({batch.at for batch in t.batches}) < len(t.batches),
    ],
    ids=["renewed", "changed early", "changed at expiry", "vanished", "mixed", "same instant"],
)
def test_everything_happens_in_some_timeline(happens: object) -> None:
    quick = settings(
        max_examples=2000,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    assert callable(happens)
    find(timelines("expiration"), lambda timeline: bool(happens(timeline)), settings=quick)
