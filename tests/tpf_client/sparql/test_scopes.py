"""Properties of patterns are computed once."""

import pickle
from typing import Any

import pytest

from tests.support.evaluation import Evaluation
from tpf_client.sparql import scopes
from tpf_client.sparql.parser import parse_query


def nested(levels: int) -> str:
    """Sub-queries inside one another, each with a filter."""
    inner = "".join(f"{{ SELECT ?a {{ ?a <e:p{n}> ?b FILTER(?b > {n}) " for n in range(levels))
    return f"SELECT ?a {{ {inner}{'} }' * levels} }}"


def test_planning_looks_at_each_level_of_nested_queries_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    bound = scopes._bound

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return bound(*arguments, **options)

    monkeypatch.setattr(scopes, "_bound", counted)
    counts = []
    for levels in (20, 40, 80):
        looked_at = 0
        Evaluation(nested(levels))
        counts.append(looked_at)
    assert 0 < counts[2] - counts[1] <= 2 * (counts[1] - counts[0])


def test_what_is_kept_changes_no_pattern() -> None:
    fresh, looked_at = (parse_query(nested(2)).pattern for _ in range(2))
    before = repr(looked_at)
    found = scopes.always_bound(looked_at), scopes.bound_but_for_errors(looked_at)
    assert looked_at == fresh
    assert hash(looked_at) == hash(fresh)
    assert repr(looked_at) == before
    copied = pickle.loads(pickle.dumps(looked_at))
    assert copied == fresh
    assert (scopes.always_bound(copied), scopes.bound_but_for_errors(copied)) == found
