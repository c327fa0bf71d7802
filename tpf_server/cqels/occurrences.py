"""Which variables occur where in a query, to know what nobody needs."""

from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any

from annotations.terms import Variable
from tpf_client.sparql.algebra import BGP, Aggregate, Path


def occurrences(value: Any) -> Counter[Variable]:
    """How often each variable occurs in a query or a part of one, patterns in EXISTS included."""
    found: Counter[Variable] = Counter()
    _count(value, found)
    return found


def _count(value: Any, found: Counter[Variable]) -> None:
    if isinstance(value, str):
        if value.startswith("?"):
            found[Variable(value)] += 1
    elif isinstance(value, tuple):
        for each in value:
            _count(each, found)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            _count(getattr(value, field.name), found)


def basic_graph_patterns(value: Any) -> list[BGP]:
    """All basic graph patterns in a query, those in EXISTS included, in the order of the text."""
    if isinstance(value, BGP):
        return [value]
    if isinstance(value, tuple):
        return [bgp for each in value for bgp in basic_graph_patterns(each)]
    if is_dataclass(value) and not isinstance(value, type):
        return [
            bgp
            for field in fields(value)
            for bgp in basic_graph_patterns(getattr(value, field.name))
        ]
    return []


def counts_whole_rows(value: Any) -> bool:
    """Whether some ``COUNT(DISTINCT *)`` looks at every variable."""
    if isinstance(value, Aggregate) and value.argument is None and value.distinct:
        return True
    if isinstance(value, tuple):
        return any(counts_whole_rows(each) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return any(counts_whole_rows(getattr(value, field.name)) for field in fields(value))
    return False


def has_paths(value: Any) -> bool:
    """Whether there is a property path somewhere that is more than a sequence of patterns."""
    if isinstance(value, tuple):
        return any(has_paths(each) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return isinstance(value, Path) or any(
            has_paths(getattr(value, field.name)) for field in fields(value)
        )
    return False
