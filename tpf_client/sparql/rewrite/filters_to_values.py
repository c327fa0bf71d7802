"""Conditions that name the IRIs that a variable may be, as inline data: those can be looked up."""

from annotations.terms import is_iri
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import BGP, Call, Constant, Expression, Pattern, VariableRef
from tpf_client.sparql.rewrite.conditions import conjunction, conjuncts
from tpf_client.sparql.rewrite.visitor import with_children
from tpf_client.sparql.scopes import always_bound


def filters_to_values(pattern: Pattern) -> Pattern:
    """The same solutions, with VALUES for conditions on a basic graph pattern where that can be."""
    match pattern:
        case algebra.Filter(BGP() as bgp, condition):
            conditions = tuple(conjuncts(condition))
            values = {each: found for each in conditions if (found := _values(each, bgp))}
            rest = conjunction([each for each in conditions if each not in values])
            narrowed: Pattern = bgp if rest is None else algebra.Filter(bgp, rest)
            for each in dict.fromkeys(values.values()):
                narrowed = algebra.Join(each, narrowed)
            return narrowed
        case algebra.Service():
            return pattern
        case _:
            return with_children(pattern, filters_to_values)


def _values(condition: Expression, pattern: BGP) -> algebra.Values | None:
    """What a condition says of a variable of the pattern, as the terms that it may have.

    Being equal to an IRI is being that IRI (section 17.4.1.7); numbers and texts may be equal to
    others than themselves.
    """
    match condition:
        case Call("=", (VariableRef(variable), Constant(term))) | Call(
            "=", (Constant(term), VariableRef(variable))
        ):
            allowed = [Constant(term)]
        case Call("IN", (VariableRef(variable), *others)):
            if not all(isinstance(each, Constant) for each in others):
                return None
            allowed = [each for each in others if isinstance(each, Constant)]
        case _:
            return None
    terms = dict.fromkeys(each.term for each in allowed)
    if variable not in always_bound(pattern) or not all(is_iri(term) for term in terms):
        return None
    return algebra.Values((variable,), tuple((term,) for term in terms))
