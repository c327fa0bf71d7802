"""SERVICE in continuous queries: patterns over a static graph with a reserved name.

The triples of the service that match a clause are kept up to date there, so all operators see their
changes, and equal clauses share a graph. Source: paper 000, section 4.1; SPARQL 1.1 Federated
Query.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    Alternative,
    Inverse,
    Link,
    Path,
    PathExpression,
    Pattern,
    Query,
    Repeat,
    Sequence,
    Service,
    Union,
)
from tpf_client.sparql.rewrite.visitor import everything, transformed
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError

_MARK: Final = "<urn:x-continuous:service:"
"""The prefix of the names of such graphs."""
_FAILED: Final = Term("<urn:x-continuous:failed>")


@dataclass(frozen=True, slots=True)
class ServiceClause:
    """A service and the patterns that it answers.

    Args:
        parts: triple patterns, in groups that are joined; the variables of a group may be any.
        silent: it has one solution without values while it fails.
    """

    endpoint: Term
    parts: tuple[tuple[QuadPattern, ...], ...]
    silent: bool

    @property
    def graph(self) -> Term:
        digest = sha256(repr((self.endpoint, self.parts, self.silent)).encode()).hexdigest()[:24]
        return Term(f"{_MARK}{digest}>")

    @property
    def failure(self) -> Quad:
        """The quad that is there while a silent service fails."""
        return Quad(self.endpoint, _FAILED, self.endpoint, Term(f"{self.graph[:-1]}:failed>"))


def is_service(graph: str) -> bool:
    """True for the graph of a service."""
    return graph.startswith(_MARK)


def with_graphs(query: Query) -> tuple[Query, tuple[ServiceClause, ...]]:
    """Return a query with graphs in place of services, and these.

    Raises:
        UnsupportedContinuousQueryError: GRAPH stands inside a service.
    """
    result: dict[ServiceClause, None] = {}

    def change(pattern: Pattern) -> Pattern:
        if not isinstance(pattern, Service):
            return pattern
        parts = tuple(dict.fromkeys(_parts(pattern.pattern, pattern.endpoint)))
        clause = ServiceClause(Term(pattern.endpoint), parts, pattern.silent)
        result[clause] = None

        def there(each: Pattern) -> Pattern:
            if isinstance(each, BGP):
                return BGP(tuple([quad._replace(graph=clause.graph) for quad in each.patterns]))
            return replace(each, graph=clause.graph) if isinstance(each, Path) else each

        answered = transformed(pattern.pattern, there)
        if not pattern.silent:
            return answered
        return Union(answered, BGP((QuadPattern(*clause.failure),)))

    return replace(query, pattern=transformed(query.pattern, change)), tuple(result)


def _parts(pattern: Pattern, endpoint: str) -> Iterator[tuple[QuadPattern, ...]]:
    for each in everything(pattern):
        graphs: Iterable[str] = ()
        if isinstance(each, BGP):
            graphs = [quad.graph for quad in each.patterns]
            if each.patterns:
                yield numbered(each.patterns)
        elif isinstance(each, Path):
            graphs = [each.graph]
            for predicate in _predicates(each.path):
                yield numbered([QuadPattern(Variable("?s"), predicate, Variable("?o"))])
        if any(graph != DEFAULT_GRAPH for graph in graphs):
            raise UnsupportedContinuousQueryError(
                f"GRAPH, STREAM or SERVICE inside SERVICE {endpoint}"
            )


def numbered(patterns: Iterable[QuadPattern]) -> tuple[QuadPattern, ...]:
    """Number the variables of patterns: equal for patterns that differ in names only."""
    names: dict[str, Variable] = {}
    return tuple(
        QuadPattern(
            *(
                names.setdefault(term, Variable(f"?v{len(names)}")) if is_variable(term) else term
                for term in pattern
            )
        )
        for pattern in patterns
    )


def _predicates(path: PathExpression) -> list[Term | Variable]:
    match path:
        case Link(predicate):
            return [predicate]
        case Inverse(inner) | Repeat(inner):
            return _predicates(inner)
        case Sequence(left, right) | Alternative(left, right):
            return [*_predicates(left), *_predicates(right)]
        case _:
            return [Variable("?p")]
