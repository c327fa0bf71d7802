"""The rule for keys from outside: where a seed may restrict a pattern, and why no answer changes.

A *seed* is a set S of solutions that all bind the same variables V, and nothing else. It stands for
what a pattern P is going to meet, so that the leaves of P need only look up what can meet it.

**The contract** of whoever evaluates P for S is to give a bag M with M(μ) = [[P]](μ) for every
solution μ that is compatible with a solution of S. Of every other solution M may hold as many
copies as it likes: whoever gave the seed throws them away. He does, where S = π_V(L) for solutions
L that bind V for certain: a join, a left join, a difference and EXISTS look, for a left solution
λ, at those right solutions alone that are compatible with λ; those are compatible with π_V(λ). So
the answer over M is the answer over [[P]].

**Fewer variables are always safe**: what is compatible with σ is compatible with each part of σ. No
seed at all is the seed of the empty solution.

**The rule**, by induction over P. Let μ be compatible with σ ∈ S.

- *Basic graph pattern, path*: what disagrees with every σ in a variable of both is left out. It is
  no such μ.
- *Join(A, B)*: μ = α ∪ β, and both parts are compatible with σ: S may go to A and to B. So may the
  solutions of A go to B, as far as A binds their variables for certain, because β is compatible
  with an α that is counted right. *Union*: S may go to both sides, one of which has μ. *Filter,
  Distinct, OrderBy*: S may go to the input, which has μ itself.
- *LeftJoin(A, B)*: S may go to A, which has α ⊆ μ. **S may not go to B**: whether α stays alone
  depends on the β that are compatible with α, and not all of them need be compatible with σ where
  σ binds a variable that α does not. Only what A binds for certain may go to B; then all these β
  are there. The condition of the left join is no help: it is asked of pairs that are there.
- *Minus(A, B)*, *EXISTS* in a filter of A: likewise; the answer is a part of A, and B only sees
  what A binds for certain.
- *Extend(A, v)*: A has μ without v, so S may go to A without v.
- *Project(A, W)*: a solution of A has its values of W from μ; of its other variables, which are not
  those of S even if they are called so, nothing is known. S may go to A as far as it is about W.
- *Group(A, K)*: μ is made of all solutions of its group, so all of them must be there or none. They
  agree in the variables among the keys: S may go to A as far as it is about those.
- *Slice(A)*: the solutions of A that are left out decide which are let through: no seed; but for
  the variables for each of whose values there is a slice of its own.

Source: SPARQL 1.1 Query Language, sections 18.3 and 18.5; for LeftJoin also Pérez, Arenas and
Gutierrez, *Semantics and Complexity of SPARQL*, 2009 (well designed patterns are those where the
difference cannot be seen).
"""

from collections.abc import Iterable

from annotations.terms import Variable
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Pattern, VariableRef


def passed_on(pattern: Pattern, names: Iterable[Variable]) -> tuple[Variable, ...]:
    """Those variables of a seed of a pattern that may restrict its input (or its left side) too.

    Args:
        pattern: the pattern that the seed was given to.
        names: the variables of the seed.
    """
    match pattern:
        case algebra.Extend(_, variable):
            return tuple(name for name in names if name != variable)
        case algebra.Project(_, variables):
            return tuple(name for name in names if name in variables)
        case algebra.Group(_, keys):
            return tuple(name for name in names if (name, VariableRef(name)) in keys)
        case algebra.Slice(_, offset, limit, by) if offset or limit is not None:
            return tuple(name for name in names if name in by)
        case _:
            return tuple(names)
