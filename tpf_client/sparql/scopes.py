"""The variables that a pattern or an expression binds, may bind, or mentions."""

from annotations.terms import Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    Call,
    Constant,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    Path,
    Pattern,
    Project,
    Reduced,
    Service,
    Slice,
    Union,
    Values,
    VariableRef,
    everything,
    expressions_of,
    variables_of_bgp,
    walk,
)

TRIPLE_TERM = "t"
"""What the names of hidden variables begin with that stand for triple terms."""


def in_scope(pattern: Pattern) -> tuple[Variable, ...]:
    """Return the variables that a solution may bind, hidden ones included (section 18.2.1)."""
    names: dict[Variable, None] = {}
    waiting: list[Pattern | Variable] = [pattern]
    while waiting:
        match waiting.pop():
            case str(name):
                names[name] = None
            case BGP(patterns):
                names.update(dict.fromkeys(variables_of_bgp(patterns)))
            case Path(subject, _, object_, graph):
                ends = (subject, object_, graph)
                names.update((Variable(end), None) for end in ends if is_variable(end))
            case Join(left, right) | LeftJoin(left, right) | Union(left, right):
                waiting += (right, left)
            case Extend(inner, variable, _):
                waiting += (variable, inner)
            case Minus(left, _):
                waiting.append(left)
            case Values(variables, _) | Project(_, variables):
                names.update(dict.fromkeys(variables))
            case Group(_, keys, aggregates):
                names.update((name, None) for name, _ in (*keys, *aggregates))
            case Service(endpoint, inner):
                waiting.append(inner)
                if is_variable(endpoint):
                    waiting.append(Variable(endpoint))
            case Filter(inner) | OrderBy(inner) | Distinct(inner) | Reduced(inner) | Slice(inner):
                waiting.append(inner)
    return tuple(names)


def always_bound(pattern: Pattern) -> frozenset[Variable]:
    """Return the variables that every solution binds."""
    return _cached_bound(pattern, computed=False)


def bound_but_for_errors(pattern: Pattern) -> frozenset[Variable]:
    """Return the variables that every solution binds unless an expression fails."""
    return _cached_bound(pattern, computed=True)


def _cached_bound(pattern: Pattern, *, computed: bool) -> frozenset[Variable]:
    slot = "_bound_but_for_errors" if computed else "_always_bound"
    bound: frozenset[Variable] | None = getattr(pattern, slot, None)
    if bound is None:
        bound = _bound(pattern, computed=computed)
        # A frozen dataclass, whose slot is no field.
        object.__setattr__(pattern, slot, bound)
    return bound


def _bound(pattern: Pattern, *, computed: bool) -> frozenset[Variable]:
    match pattern:
        case BGP() | Path():
            return frozenset(in_scope(pattern))
        case Join(left, right):
            return _cached_bound(left, computed=computed) | _cached_bound(right, computed=computed)
        case Union(left, right):
            return _cached_bound(left, computed=computed) & _cached_bound(right, computed=computed)
        case Extend(inner, variable, expression):
            inside = _cached_bound(inner, computed=computed)
            copied = isinstance(expression, VariableRef) and expression.variable in inside
            sure = computed or copied or is_never_an_error(expression)
            return inside | {variable} if sure else inside
        case LeftJoin(inner) | Minus(inner):
            return _cached_bound(inner, computed=computed)
        case Filter(inner) | OrderBy(inner) | Distinct(inner) | Reduced(inner) | Slice(inner):
            return _cached_bound(inner, computed=computed)
        case Project(inner, variables):
            return _cached_bound(inner, computed=computed) & frozenset(variables)
        case Values(variables, rows):
            return frozenset(
                name for column, name in enumerate(variables) if all(row[column] for row in rows)
            )
        case Group(inner, keys, aggregates):
            if computed:
                return frozenset(name for name, _ in (*keys, *aggregates))
            same = {name for name, key in keys if key == VariableRef(name)}
            return always_bound(inner) & same
        case Service():
            return frozenset()


def is_never_an_error(expression: Expression) -> bool:
    """True if an expression has a value in every solution."""
    return isinstance(expression, Constant) or is_part_of_triple(expression)


def is_part_of_triple(expression: Expression) -> bool:
    """True for a hidden variable tested to be a triple term's part (see the parser)."""
    match expression:
        case Call("SUBJECT" | "PREDICATE" | "OBJECT", (VariableRef(variable),)):
            return variable.startswith(f"?.{TRIPLE_TERM}")
    return False


def variables_in(expression: Expression) -> frozenset[Variable]:
    """Return the variables of an expression, those free in its EXISTS included."""
    variables: set[Variable] = set()
    for each in everything(expression, Exists):
        if isinstance(each, VariableRef):
            variables.add(each.variable)
        elif isinstance(each, Exists):
            variables |= mentioned(each.pattern)
    return frozenset(variables)


def mentioned(pattern: Pattern) -> frozenset[Variable]:
    """Return every variable in a pattern, in its expressions too."""
    variables = set(in_scope(pattern))
    for inner in walk(pattern):
        match inner:
            case Project() | Group():
                variables.update(in_scope(inner.input))
            case Minus(_, right):
                variables.update(in_scope(right))
            case _:
                pass
        for expression in expressions_of(inner):
            variables |= variables_in(expression)
    return frozenset(variables)
