"""An independent engine and an independent model of publication, to compare answers with.

The engine is pyoxigraph. The model is a plain reading of the rules: a fact is valid at *now* iff
``start <= now < end``; a fact that is published replaces the expiring fact of the same key, and
ends the interval of the same key that is open at its start.
"""

from collections.abc import Iterable, Mapping

import pyoxigraph as ox

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, is_variable

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
    """A store of pyoxigraph that holds these quads; blank nodes keep their labels."""
    text = "\n".join(" ".join(term for term in quad if term) + " ." for quad in quads)
    store = ox.Store()
    store.extend(ox.parse(text, format=ox.RdfFormat.N_QUADS))
    return store


def match_patterns(
    store: ox.Store, patterns: Iterable[QuadPattern], bound: Mapping[str, Term] | None = None
) -> list[dict[str, Term]]:
    """The solutions of quad patterns together, beside what is bound already.

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


def select(store: ox.Store, query: str) -> list[dict[str, Term]]:
    """The solutions of a SELECT query, with multiplicities: variable to term; unbound ones absent.

    Raises:
        SyntaxError: the query is malformed.
    """
    answer = store.query(query)
    assert isinstance(answer, ox.QuerySolutions)
    names = answer.variables
    return [
        {str(name): term_of(term) for name in names if (term := row[name]) is not None}
        for row in answer
    ]
