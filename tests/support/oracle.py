"""An independent engine and an independent model of publication, to compare answers with.

The engine is pyoxigraph. The model is a plain reading of the rules: a fact is valid at *now* iff
``start <= now < end``; a fact that is published replaces the expiring fact of the same key, and
ends the interval of the same key that is open at its start.
"""

import pyoxigraph as ox

from annotations.terms import DEFAULT_GRAPH, Quad, Term


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
