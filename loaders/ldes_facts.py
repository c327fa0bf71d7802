"""What an event stream says, as a patch for a server, or as the facts that it comes to."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from annotations.labels import Expiration, Fact, Interval
from annotations.methods import method_named
from annotations.methods.base import Naming
from annotations.terms import Quad
from loaders.outputs import line_of
from loaders.sources.ldes import LdesFollower, MemberChanges


def patches_of(
    changes: MemberChanges, naming: Naming, now: datetime, *, past: bool
) -> Iterator[bytes]:
    """RDF Patches of annotated facts, in order.

    Intervals and expirations each have one: within a document, a fact cannot have both. An
    expiration that goes does so before its fact comes with an interval, or would take that along.

    Args:
        changes: what comes and goes.
        naming: names the annotations.
        now: what has expired by then is left out.
        past: whether intervals that have ended are of interest.
    """
    method = method_named("reification")
    # What goes and what comes may be versions of one fact, with one name.
    of_gone = replace(naming, fact_base=f"{naming.fact_base}gone/")
    ending = {fact.quad for fact in changes.gone if isinstance(fact.label, Expiration)}
    steps: list[tuple[type[Interval] | type[Expiration], str]] = [
        (Interval, "DA"), (Expiration, "DA"),
    ]  # fmt: skip
    if any(isinstance(each.label, Interval) and each.quad in ending for each in changes.said):
        steps = [(Expiration, "D"), (Interval, "DA"), (Expiration, "A")]
    for kind, signs in steps:
        lines = [
            f"{sign} {line_of(quad)}\n"
            for sign, facts, names in (("D", changes.gone, of_gone), ("A", changes.said, naming))
            if sign in signs
            for fact in facts
            if isinstance(fact.label, kind)
            and (fact.label.end > now or (past and kind is Interval))
            for quad in method.encode(fact, names)
        ]
        if lines:
            yield "".join(lines).encode()


def held(follower: LdesFollower) -> Iterator[Fact]:
    """The facts that all members come to, each with its label."""
    found: dict[Quad, dict[datetime | None, Fact]] = {}
    for changes, taken in follower.changes():
        for fact in changes.gone:
            _cut(found.get(fact.quad, {}), fact)
        for fact in changes.said:
            assert fact.label is not None
            found.setdefault(fact.quad, {})[fact.label.start] = fact
        taken()
    return _all(found.values())


def _all(found: Iterable[dict[datetime | None, Fact]]) -> Iterator[Fact]:
    for facts in found:
        yield from facts.values()


def _cut(facts: dict[datetime | None, Fact], gone: Fact) -> None:
    if isinstance(gone.label, Expiration):
        facts.pop(None, None)
        return
    assert gone.label is not None
    for start, fact in list(facts.items()):
        if start is None or fact.label is None or fact.label.end <= gone.label.start:
            continue
        if start < gone.label.start:
            facts[start] = Fact(fact.quad, Interval(start, gone.label.start))
        elif start < gone.label.end:
            del facts[start]
