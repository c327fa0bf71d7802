"""Terms in place of variables that can have no other value: `BIND(<iri> AS ?x)`, VALUES of one row.

Where one side of a join, or the left side of OPTIONAL, gives a variable the same term in every
solution, a pattern beside it may as well have the term in the variable's place: then it is asked
for with that term from the beginning, and counted so.

Written *J(P) = P ⋈ {v → c}*, a pattern *P* becomes *P'* with *J(P') = J(P)*, without *v* where that
can be:

- the solutions of a basic graph pattern, or of a path of at least one step, that are compatible
  with *v → c* are those that give *v* the value *c*: those of the pattern with *c* in its place,
  with *v* added. (A path of no steps from a variable begins at what the graph holds, one from a
  term also where the graph lacks it: section 18.4.)
- joins and unions: *J(P ⋈ Q) = J(P) ⋈ J(Q)*, *J(P ∪ Q) = J(P) ∪ J(Q)*;
- FILTER, BIND and the left side of OPTIONAL and MINUS, where what they compute does not mention *v*
  and every solution of the left side binds it: each solution is then kept, extended or matched for
  itself. The right side of OPTIONAL must not bind *v* any more when it is done, that of MINUS must
  not mention it: what is left of the left side no longer says which value *v* has.

Source: SPARQL 1.1 Query Language, sections 18.4 and 18.5; Pérez, Arenas and Gutierrez, *Semantics
and Complexity of SPARQL*, TODS 2009, section 4.
"""

from collections.abc import Mapping
from dataclasses import replace

from annotations.terms import QuadPattern, Term, TermOrVariable, Variable, is_variable
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import BGP, Constant, Pattern
from tpf_client.sparql.path_expressions import Repeat
from tpf_client.sparql.rewrite.visitor import with_children
from tpf_client.sparql.scopes import always_bound, in_scope, mentioned, variables_in

Fixed = Mapping[Variable, Term]


def put_constants(pattern: Pattern) -> Pattern:
    """The same solutions, with terms in place of the variables that can have no other value.

    Args:
        pattern: a pattern.
    """
    if isinstance(pattern, algebra.Service):
        return pattern
    whole = with_children(pattern, put_constants)
    match whole:
        case algebra.Join(left, right):
            return algebra.Join(_put(left, fixed(right)), _put(right, fixed(left)))
        case algebra.LeftJoin(left, right):
            return replace(whole, right=_put(right, fixed(left)))
        case _:
            return whole


def fixed(pattern: Pattern) -> dict[Variable, Term]:
    """The variables to which every solution of a pattern gives the same term."""
    match pattern:
        case algebra.Values(variables, (row,)):
            return {name: term for name, term in zip(variables, row, strict=True) if term}
        case algebra.Extend(inner, variable, Constant(term)):
            return {**fixed(inner), variable: term}
        case algebra.Join(left, right):
            return {**fixed(left), **fixed(right)}
        case algebra.Filter(inner) | algebra.Extend(inner):
            return fixed(inner)
        case algebra.LeftJoin(inner) | algebra.Minus(inner):
            return fixed(inner)
        case _:
            return {}


def _put(pattern: Pattern, terms: Fixed) -> Pattern:
    """The pattern with terms in place of variables, as far as may be: *P'* above."""
    if not any(name in terms for name in in_scope(pattern)):
        return pattern
    match pattern:
        case BGP(patterns):
            return BGP(
                tuple(QuadPattern(*(_at(each, terms) for each in quad)) for quad in patterns)
            )
        case algebra.Path(subject, Repeat(at_least_once=True) as path, object_, graph):
            return algebra.Path(_at(subject, terms), path, _at(object_, terms), _at(graph, terms))
        case algebra.Join(left, right):
            return algebra.Join(_put(left, terms), _put(right, terms))
        case algebra.Union(left, right):
            return algebra.Union(_put(left, terms), _put(right, terms))
        case algebra.Filter(inner, condition):
            return replace(pattern, input=_put(inner, _but(terms, inner, variables_in(condition))))
        case algebra.Extend(inner, variable, expression):
            used = variables_in(expression) | {variable}
            return replace(pattern, input=_put(inner, _but(terms, inner, used)))
        case algebra.Minus(left, right, apart):
            used = mentioned(right) | set(apart)
            return replace(pattern, left=_put(left, _but(terms, left, used)))
        case algebra.LeftJoin(left, right, condition):
            used = frozenset() if condition is None else variables_in(condition)
            usable = _but(terms, left, used)
            optional = _put(right, usable)
            usable = {name: usable[name] for name in usable.keys() - set(in_scope(optional))}
            return replace(pattern, left=_put(left, usable), right=_put(right, usable))
        case _:
            return pattern


def _at(term: TermOrVariable, terms: Fixed) -> TermOrVariable:
    return terms.get(Variable(term), term) if is_variable(term) else term


def _but(terms: Fixed, inner: Pattern, used: frozenset[Variable]) -> Fixed:
    """The terms of variables that a pattern always binds and that nothing else uses."""
    return {name: terms[name] for name in terms.keys() & always_bound(inner) - used}
