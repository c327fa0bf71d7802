"""SERVICE in a dataflow.

Source: SPARQL 1.1 Federated Query.
"""

from annotations.terms import Term, Variable, is_iri, is_variable
from tpf_client.dataflow.build.construction import Construction
from tpf_client.dataflow.changes import TermId
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.each_endpoint import EachEndpoint
from tpf_client.dataflow.operators.hash_join import HashJoin
from tpf_client.dataflow.operators.values import Values
from tpf_client.errors import SourceError, UnsupportedQueryError
from tpf_client.sparql import algebra
from tpf_client.sparql.scopes import in_scope


def build_service(builder: Construction, pattern: algebra.Service, seed: Node | None) -> Node:
    """The solutions of a pattern at an endpoint, or at each that a variable names.

    Args:
        builder: builds the pattern.
        pattern: the endpoint and the pattern.
        seed: what it is joined with; where a variable names the endpoints, they come from here.

    Raises:
        UnsupportedQueryError: there are no endpoints to ask, or nothing names them.
        SourceError: what is named is no endpoint.
    """
    if builder.services is None:
        raise UnsupportedQueryError(f"SERVICE {pattern.endpoint} cannot be asked from here")
    if not is_variable(pattern.endpoint):
        return _asked_there(builder, Term(pattern.endpoint), pattern, seed)
    name, names = Variable(pattern.endpoint), in_scope(pattern)
    given = builder.seed(seed, names)
    if given is None or name not in given.schema:
        raise UnsupportedQueryError(f"SERVICE {name}: nothing before it gives it a value")

    def build(endpoint: TermId, entry: Node) -> Node:
        term = builder.flow.dictionary.decode(endpoint)
        here = builder.flow.add(Values((name,), [(endpoint,)]))
        there = _asked_there(builder, term, pattern, entry)
        return builder.project(builder.flow.add(HashJoin(here, there)), names)

    return builder.flow.add(EachEndpoint(given, name, names, build, builder.defer))


def _asked_there(
    builder: Construction, endpoint: Term, pattern: algebra.Service, seed: Node | None
) -> Node:
    """The solutions of a service at one endpoint."""
    silent = pattern.silent and (endpoint in pattern.failed or not is_iri(endpoint))
    if not silent and not is_iri(endpoint):
        raise SourceError(endpoint, "not the IRI of a service")
    assert builder.services is not None
    leaves = builder.leaves if silent else builder.services(endpoint)
    there = builder.elsewhere(leaves)
    return there.build(algebra.EMPTY_GROUP if silent else pattern.pattern, seed)
