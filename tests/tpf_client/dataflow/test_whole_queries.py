"""Random queries over random graphs that change, beside pyoxigraph."""

from collections import Counter

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Quad
from tests.support.evaluation import Evaluation
from tests.support.examples import examples
from tests.support.memory_leaves import CountedLookups, LookupLeaves, ScanningLeaves
from tests.support.oracle import store_of
from tests.support.random_queries import graphs, queries
from tpf_client.errors import QuerySyntaxError, UnsupportedQueryError

KINDS = [ScanningLeaves, LookupLeaves, CountedLookups]


def wanted(query: str, quads: frozenset[Quad], names: list[str]) -> Counter[tuple[str | None, ...]]:
    result = store_of(quads).query(query)
    if not hasattr(result, "variables"):
        return Counter({(): 1} if bool(result) else {})
    assert isinstance(result, ox.QuerySolutions)
    assert {each.value for each in result.variables} == set(names)
    return Counter(
        tuple(None if row[name] is None else str(row[name]) for name in names) for row in result
    )


def check(query: str, kind: type, timeline: list[frozenset[Quad]]) -> None:
    try:
        evaluation = Evaluation(query, kind)
    except QuerySyntaxError:
        # Random texts may bind a variable twice; then they are no queries for anybody.
        with pytest.raises(SyntaxError):
            store_of([]).query(query)
        return
    except UnsupportedQueryError:
        # Substitution (section 18.6) would put a value behind AS.
        assert "EXISTS" in query
        assert "BIND" in query
        return
    ask = evaluation.query.form == "ASK"
    names = [] if ask else [name[1:] for name in evaluation.variables]
    before: frozenset[Quad] = frozenset()
    followed: Counter[tuple[int, ...]] = Counter()
    for quads in timeline:
        try:
            evaluation.change(added=sorted(quads - before), removed=sorted(before - quads))
        except UnsupportedQueryError:
            # The same, where the variable has a value in some solutions only.
            assert "EXISTS" in query
            assert "BIND" in query
            return
        before = quads
        made = Counter(evaluation.rows())
        if ask:
            made = Counter({(): 1} if made else {})
        assert made == wanted(query, quads, names)
        for row, count in evaluation.output.take_changes():
            followed[row] += count
        assert followed == evaluation.output.multiset()


@examples(125)
@given(queries, graphs, st.sampled_from(KINDS))
def test_once(query: str, quads: frozenset[Quad], kind: type) -> None:
    check(query, kind, [quads])


@examples(125)
@given(
    queries,
    st.lists(graphs, min_size=2, max_size=4),
    st.sampled_from(KINDS),
)
def test_under_changes(query: str, timeline: list[frozenset[Quad]], kind: type) -> None:
    check(query, kind, timeline)
