"""The variables that a pattern or an expression binds, may bind, or mentions."""

from annotations.terms import Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    Aggregate,
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
    expressions_of,
    variables_of_bgp,
    walk,
)

TRIPLE_TERM = "t"
"""What the names of hidden variables begin with that stand for triple terms."""


def in_scope(pattern: Pattern) -> tuple[Variable, ...]:
    """Return the variables that a solution may bind, hidden ones included (section 18.2.1)."""
    found: dict[Variable, None] = {}
    waiting: list[Pattern | Variable] = [pattern]
    while waiting:
        match waiting.pop():
            case str(name):
                found[name] = None
            case BGP(patterns):
                found.update(dict.fromkeys(variables_of_bgp(patterns)))
            case Path(subject, _, object_, graph):
                ends = (subject, object_, graph)
                found.update((Variable(end), None) for end in ends if is_variable(end))
            case Join(left, right) | LeftJoin(left, right) | Union(left, right):
                waiting += (right, left)
            case Extend(inner, variable, _):
                waiting += (variable, inner)
            case Minus(left, _):
                waiting.append(left)
            case Values(variables, _) | Project(_, variables):
                found.update(dict.fromkeys(variables))
            case Group(_, keys, aggregates):
                found.update((name, None) for name, _ in (*keys, *aggregates))
            case Service(endpoint, inner):
                waiting.append(inner)
                if is_variable(endpoint):
                    waiting.append(Variable(endpoint))
            case Filter(inner) | OrderBy(inner) | Distinct(inner) | Reduced(inner) | Slice(inner):
                waiting.append(inner)
    return tuple(found)


def always_bound(pattern: Pattern) -> frozenset[Variable]:
    """Return the variables that every solution binds."""
    return _known(pattern, computed=False)


def bound_but_for_errors(pattern: Pattern) -> frozenset[Variable]:
    """Return the variables that every solution binds unless an expression fails."""
    return _known(pattern, computed=True)


def _known(pattern: Pattern, *, computed: bool) -> frozenset[Variable]:
    """Cache `_bound`: each level of a query asks about all below."""
    slot = "_bound_but_for_errors" if computed else "_always_bound"
    found: frozenset[Variable] | None = getattr(pattern, slot, None)
    if found is None:
        found = _bound(pattern, computed=computed)
        # A frozen dataclass, whose slot is no field.
        object.__setattr__(pattern, slot, found)
    return found


def _bound(pattern: Pattern, *, computed: bool) -> frozenset[Variable]:
    match pattern:
        case BGP() | Path():
            return frozenset(in_scope(pattern))
        case Join(left, right):
            return _known(left, computed=computed) | _known(right, computed=computed)
        case Union(left, right):
            return _known(left, computed=computed) & _known(right, computed=computed)
        case Extend(inner, variable, expression):
            inside = _known(inner, computed=computed)
            copied = isinstance(expression, VariableRef) and expression.variable in inside
            sure = computed or copied or is_never_an_error(expression)
            return inside | {variable} if sure else inside
        case LeftJoin(inner) | Minus(inner):
            return _known(inner, computed=computed)
        case Filter(inner) | OrderBy(inner) | Distinct(inner) | Reduced(inner) | Slice(inner):
            return _known(inner, computed=computed)
        case Project(inner, variables):
            return _known(inner, computed=computed) & frozenset(variables)
        case Values(variables, rows):
            return frozenset(
                name for place, name in enumerate(variables) if all(row[place] for row in rows)
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
    found: set[Variable] = set()
    waiting = [expression]
    while waiting:
        match waiting.pop():
            case VariableRef(variable):
                found.add(variable)
            case Call(_, arguments):
                waiting.extend(arguments)
            case Aggregate(_, argument) if argument is not None:
                waiting.append(argument)
            case Exists(pattern):
                found |= mentioned(pattern)
            case _:
                pass
    return frozenset(found)


def mentioned(pattern: Pattern) -> frozenset[Variable]:
    """Return every variable in a pattern, in its expressions too."""
    found = set(in_scope(pattern))
    for inner in walk(pattern):
        match inner:
            case Project() | Group():
                found.update(in_scope(inner.input))
            case Minus(_, right):
                found.update(in_scope(right))
            case _:
                pass
        for expression in expressions_of(inner):
            found |= variables_in(expression)
    return frozenset(found)
