"""NOW() in continuous queries: it changes while nothing comes, which dataflows do not see."""

from tpf_client.sparql.algebra import Call, Query
from tpf_client.sparql.rewrite.visitor import everything


def says_now(query: Query) -> bool:
    """Whether NOW() stands anywhere in a query."""
    return any(isinstance(each, Call) and each.name == "NOW" for each in everything(query))
