"""An independent engine and an independent model of publication, to compare answers with.

The engine is pyoxigraph. The model, `Publications`, is a plain reading of the rules: a fact is
valid at *now* iff ``start <= now < end``; a new fact replaces the expiring fact of its key, and
ends the interval of its key that is open at its start.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import pyoxigraph as ox

from annotations.errors import LabelError, OverlapError
from annotations.instants import format_instant
from annotations.labels import (
    Expiration,
    Fact,
    FactKey,
    Interval,
    Label,
    check_no_overlap,
    key_of,
)
from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, is_variable

SolutionBag: TypeAlias = Counter[frozenset[tuple[str, str]]]
"""A multiset of solutions, each as its pairs of variable and term."""

_DEFAULT = Term("<urn:default>")


def term_of(term: object) -> Term:
    """The canonical text of a pyoxigraph term."""
    if isinstance(term, ox.DefaultGraph):
        return DEFAULT_GRAPH
    if isinstance(term, ox.Triple):
        inner = " ".join(term_of(part) for part in (term.subject, term.predicate, term.object))
        return Term(f"<<( {inner} )>>")
    return Term(str(term))


def quad_of(quad: ox.Quad) -> Quad:
    """The quad of a pyoxigraph quad."""
    return Quad(*map(term_of, (quad.subject, quad.predicate, quad.object, quad.graph_name)))


def store_of(quads: Iterable[Quad]) -> ox.Store:
    """Return a pyoxigraph store of these quads; blank nodes keep their labels."""
    text = "\n".join(" ".join(term for term in quad if term) + " ." for quad in quads)
    store = ox.Store()
    store.extend(ox.parse(text, format=ox.RdfFormat.N_QUADS))
    return store


def match_patterns(
    store: ox.Store, patterns: Iterable[QuadPattern], bound: Mapping[str, Term] | None = None
) -> list[dict[str, Term]]:
    """Return the joint solutions of quad patterns, given bindings.

    A variable as graph stands for any graph, the default graph included.
    """
    bound = dict(bound or {})
    groups = []
    for pattern in patterns:
        *triple, graph = (bound.get(term, term) for term in pattern)
        if DEFAULT_GRAPH in triple:
            return []  # the default graph has no name that a triple could hold
        group = " ".join(triple)
        if is_variable(graph):
            default = f"{{ {group} BIND({_DEFAULT} AS {graph}) }}"
            groups.append(f"{default} UNION {{ GRAPH {graph} {{ {group} }} }}")
        else:
            groups.append(f"GRAPH {graph} {{ {group} }}" if graph else group)
    query = "SELECT * WHERE {" + " ".join(f"{{ {group} }}" for group in groups) + "}"
    return [
        bound | {name: DEFAULT_GRAPH if term == _DEFAULT else term for name, term in row.items()}
        for row in select(store, query)
    ]


def solutions_of(store: ox.Store, query: str, **options: Any) -> ox.QuerySolutions:
    """Return the solutions of a SELECT query."""
    found = store.query(query, **options)
    assert isinstance(found, ox.QuerySolutions)
    return found


def select(store: ox.Store, query: str) -> list[dict[str, Term]]:
    """Return the solutions of a SELECT query, with multiplicities; unbound variables are absent."""
    answer = store.query(query)
    assert isinstance(answer, ox.QuerySolutions)
    names = answer.variables
    return [
        {str(name): term_of(term) for name in names if (term := row[name]) is not None}
        for row in answer
    ]


def bag(solutions: Iterable[Mapping[str, str]]) -> SolutionBag:
    """Return solutions as a multiset."""
    return Counter(frozenset(solution.items()) for solution in solutions)


class Publications:
    """The state after a series of publications: a list per key, read from end to end."""

    def __init__(self, static: Iterable[Quad] = (), key: FactKey = "subject-predicate") -> None:
        self.static = tuple(dict.fromkeys(static))
        self._key: FactKey = key
        self._versions: dict[tuple[str, ...], list[Fact]] = {}

    def publish(self, facts: Sequence[Fact], now: datetime) -> None:
        """Add a batch, all or none, or raise `LabelError` or `OverlapError`."""
        check_no_overlap(facts, self._key)
        changed = dict(self._versions)
        # An expiring fact counts as starting now, so it comes before the intervals to come.
        for fact in sorted(facts, key=lambda fact: _start(fact, now)):
            key = key_of(fact.quad, self._key)
            changed[key] = _with(changed.get(key, []), fact, now)
        self._versions = changed

    def accepts(self, facts: Sequence[Fact], now: datetime) -> bool:
        """True if this batch could be published now."""
        tried = Publications(self.static, self._key)
        tried._versions = self._versions
        try:
            tried.publish(facts, now)
        except LabelError:
            return False
        return True

    def facts(self) -> list[Fact]:
        """Return every known version, the static facts first."""
        versions = [fact for facts in self._versions.values() for fact in facts]
        return [*(Fact(quad) for quad in self.static), *versions]

    def valid_at(self, now: datetime) -> list[Quad]:
        """Return the set of quads that hold at an instant."""
        return list(dict.fromkeys(fact.quad for fact in self.facts() if fact.valid_at(now)))

    def answer(self, query: str, now: datetime) -> SolutionBag:
        """Return the solutions of a SELECT query over the quads that hold at an instant."""
        return bag(select(store_of(self.valid_at(now)), query))


def _label(fact: Fact) -> Label:
    if fact.label is None:
        raise LabelError(f"a live fact needs a label: {fact.quad}")
    return fact.label


def _start(fact: Fact, now: datetime) -> datetime:
    start = _label(fact).start
    return now if start is None else start


def _with(versions: list[Fact], fact: Fact, now: datetime) -> list[Fact]:
    """Return the versions of one fact after one more was published."""
    label, start = _label(fact), _start(fact, now)
    if label.end <= now:
        raise LabelError(f"ended at {format_instant(label.end)}: {fact.quad}")
    if fact in versions:
        return versions
    kept = [_beside(known, label, start, now) for known in versions]
    return [*(known for known in kept if known is not None), fact]


def _beside(known: Fact, label: Label, start: datetime, now: datetime) -> Fact | None:
    """Return the rest of a version when one with another label comes, or ``None``."""
    old = _label(known)
    if isinstance(old, Interval):
        if start < old.start < label.end:
            raise OverlapError(f"reaches into what was published before: {known.quad}")
        if old.start == start:
            # An interval corrects the one with its start; an expiring fact ends it as it begins.
            return None
        if old.start < start < old.end:
            return known._replace(label=Interval(old.start, start))
        return known
    if isinstance(label, Expiration):
        return None
    if old.end <= start:
        return known
    return known._replace(label=Expiration(start)) if start > now else None
