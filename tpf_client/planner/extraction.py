"""From the quads of a fragment to solutions of its pattern."""

from collections.abc import Callable

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, is_variable
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import variables_of_quad


def extractor(
    pattern: QuadPattern, dictionary: TermDictionary
) -> Callable[[Quad], Solution | None]:
    """A function from a quad to the solution of the pattern's variables, ``None``: no match.

    A variable as graph does not match the default graph (SPARQL 1.1, section 13.3).
    """
    variables = variables_of_quad(pattern)
    places = [pattern.index(name) for name in variables]
    repeats = [
        (place, pattern.index(term))
        for place, term in enumerate(pattern)
        if is_variable(term) and pattern.index(term) != place
    ]
    constants = [
        (place, term)
        for place, term in enumerate(pattern[:3])
        if not is_variable(term) and term.startswith(("_:", '"'))
    ]
    named_only = is_variable(pattern.graph)
    encode = dictionary.encode
    if not (repeats or constants or named_only):
        if len(places) == 1:
            (only,) = places
            return lambda quad: (encode(quad[only]),)
        if len(places) == 2:
            first, second = places
            return lambda quad: (encode(quad[first]), encode(quad[second]))

    def extract(quad: Quad) -> Solution | None:
        if named_only and quad.graph == DEFAULT_GRAPH:
            return None
        for place, first in repeats:
            if quad[place] != quad[first]:
                return None
        for place, term in constants:
            if quad[place] != term:
                return None
        return tuple([encode(quad[place]) for place in places])

    return extract
