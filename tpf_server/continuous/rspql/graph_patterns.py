"""GRAPH inside WINDOW: patterns over the named graphs that elements are."""

from collections.abc import Callable

from annotations.terms import Term, TermOrVariable, Variable, is_variable
from tpf_client.sparql.algebra import Call, Extend, Filter, Join, Pattern, Values, VariableRef
from tpf_client.sparql.rewrite.rename import renamed
from tpf_client.sparql.scopes import mentioned


def named(
    pattern: Pattern, hidden: Variable, graph: TermOrVariable, fresh: Callable[[], Variable]
) -> Pattern:
    """``GRAPH graph { … }``, where it is known what stands inside.

    Args:
        pattern: that; its triple patterns lie in a graph called `hidden`.
        hidden: a variable that is bound to the names of the graphs of a window.
        graph: what the query calls them.
        fresh: makes hidden variables.
    """
    if not is_variable(graph):
        return Join(Values((hidden,), ((Term(graph),),)), pattern)
    name = Variable(graph)
    if name not in mentioned(pattern):
        return Extend(pattern, name, VariableRef(hidden))
    # Inside it is a variable like any other, compared with the graph afterwards.
    inner = fresh()
    pattern = Extend(renamed(pattern, name, inner), name, VariableRef(hidden))
    unbound = Call("!", (Call("BOUND", (VariableRef(inner),)),))
    equal = Call("SAMETERM", (VariableRef(inner), VariableRef(name)))
    return Filter(pattern, Call("||", (unbound, equal)))
