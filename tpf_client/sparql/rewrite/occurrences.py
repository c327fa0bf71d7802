"""Which variables occur where in a query, to know what nobody needs."""

from collections import Counter
from typing import Any

from annotations.terms import Variable
from tpf_client.sparql.algebra import Aggregate
from tpf_client.sparql.rewrite.visitor import everything


def occurrences(value: Any) -> Counter[Variable]:
    """How often each variable occurs in a query or a part of one, patterns in EXISTS included."""
    terms = (each for each in everything(value) if isinstance(each, str))
    return Counter(Variable(term) for term in terms if term.startswith("?"))


def counts_whole_rows(value: Any) -> bool:
    """Whether some ``COUNT(DISTINCT *)`` looks at every variable."""
    return any(
        isinstance(each, Aggregate) and each.argument is None and each.distinct
        for each in everything(value)
    )
