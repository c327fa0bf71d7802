"""A plan as text, and as JSON."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from annotations.instants import LAST
from annotations.terms import QuadPattern, is_variable
from tpf_client.planner.leaves import Step
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Exists, Link, Pattern, children, parts_of
from tpf_client.sparql.rewrite.visitor import everything

# A plan as the tree that the query is: which parts are optional, which alternatives, which nested.
#
# A list of lines, each with how deep it lies, outermost first: so that a long chain is no deep
# value.

MOST_LINES: Final = 500
"""Lines of a tree; beyond that nobody reads them."""

_Shape: TypeAlias = frozenset[tuple[tuple[str, str, str], int]]


def plan_tree(pattern: Pattern, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return the lines of a rewritten pattern's plan."""
    unclaimed = _Parts(steps)
    lines: list[dict[str, Any]] = []
    claims: dict[_Shape, list[int]] = {}
    waiting: list[tuple[object, int]] = [(pattern, 0)]
    while waiting and len(lines) < MOST_LINES:
        each, depth = waiting.pop()
        if isinstance(each, _Label):
            lines.append({"depth": depth, "operator": each.text, "about": "", "parts": []})
            waiting += [(inner, depth + 1) for inner in reversed(each.inside)]
            continue
        operator, details = _described(each)
        parts: list[int] = []
        if isinstance(each, algebra.BGP):
            shape = _shape(each.patterns)
            parts = unclaimed.of(shape)
            claims.setdefault(shape, parts)
        elif isinstance(each, algebra.Path):
            parts = unclaimed.with_predicates(_predicates(each))
        if operator:
            lines.append({"depth": depth, "operator": operator, "about": details, "parts": parts})
            depth += 1
        waiting += [(inner, depth) for inner in reversed(_inside(each))]
    # What was built again, for solutions of another kind.
    for shape, parts in claims.items():
        parts += unclaimed.all_of(shape)
    rest = unclaimed.rest()
    if rest:
        lines.append({"depth": 0, "operator": "also", "about": "", "parts": rest})
    return lines


class _Label:
    def __init__(self, text: str, *inside: object) -> None:
        self.text = text
        self.inside = inside


def _inside(pattern: object) -> tuple[object, ...]:
    match pattern:
        case algebra.LeftJoin(left, right, condition):
            return left, _Label("OPTIONAL", right, *_exists(condition))
        case algebra.Minus(left, right):
            return left, _Label("MINUS", right)
        case algebra.Union():
            return tuple([_Label("either" if n == 0 else "or", side)
                          for n, side in enumerate(_sides(pattern))])  # fmt: skip
        case algebra.Join():
            return children(pattern)
        case algebra.BGP() | algebra.Path() | algebra.Values():
            return ()
    operands: list[object] = []
    for part in parts_of(pattern):
        operands += [part] if isinstance(part, Pattern) else _exists(part)
    return tuple(operands)


def _sides(union: algebra.Union) -> list[Pattern]:
    sides: deque[Pattern] = deque()
    each: Pattern = union
    while isinstance(each, algebra.Union):
        sides.appendleft(each.right)
        each = each.left
    return [each, *sides]


def _exists(value: object) -> list[_Label]:
    return [
        _Label("NOT EXISTS" if each.negated else "EXISTS", each.pattern)
        for each in everything(value, Exists)
        if isinstance(each, Exists)
    ]


def _described(pattern: object) -> tuple[str, str]:
    match pattern:
        case algebra.BGP(patterns):
            return ("match", "") if patterns else ("", "")
        case algebra.Path():
            return "path", f"{pattern.subject} … {pattern.object}"
        case algebra.Filter(_, condition):
            return "FILTER", _names(condition)
        case algebra.Union():
            return "UNION", ""
        case algebra.Extend(_, variable):
            return "BIND", str(variable)
        case algebra.Values(variables, rows):
            return "VALUES", f"{' '.join(variables)} ({len(rows)})"
        case algebra.Group(_, keys, aggregates):
            shown = " ".join(name for name, _ in keys if not name.startswith("?."))
            return "GROUP BY", shown or ", ".join(each.name for _, each in aggregates)
        case algebra.OrderBy(_, conditions):
            return "ORDER BY", _names(conditions)
        case algebra.Project(_, variables):
            return "SELECT", " ".join(each for each in variables if not each.startswith("?."))
        case algebra.Distinct():
            return "DISTINCT", ""
        case algebra.Slice(_, offset, limit):
            asked = {"LIMIT": limit, "OFFSET": offset or None}
            return " ".join(f"{name} {n}" for name, n in asked.items() if n is not None), ""
        case algebra.Service(endpoint):
            return "SERVICE", str(endpoint)
    return "", ""


def _names(value: object) -> str:
    names = dict.fromkeys(
        each.variable
        for each in everything(value, Exists)
        if isinstance(each, algebra.VariableRef) and not each.variable.startswith("?.")
    )
    return " ".join(names)


def _predicates(path: algebra.Path) -> set[str]:
    return {str(each.predicate) for each in everything(path.path) if isinstance(each, Link)}


def _shape(patterns: Sequence[QuadPattern]) -> _Shape:
    return frozenset(Counter((each[0], each[1], each[2]) for each in patterns).items())


class _Parts:
    def __init__(self, steps: Sequence[Step]) -> None:
        patterns: dict[int, list[QuadPattern]] = {}
        for step in steps:
            patterns.setdefault(step.part, []).append(step.pattern)
        self._shapes = {part: _shape(part_patterns) for part, part_patterns in patterns.items()}
        self._patterns = patterns

    def of(self, shape: _Shape) -> list[int]:
        matching = next((part for part, each in self._shapes.items() if each == shape), None)
        return [] if matching is None else self._taken([matching])

    def all_of(self, shape: _Shape) -> list[int]:
        return self._taken([part for part, each in self._shapes.items() if each == shape])

    def with_predicates(self, predicates: set[str]) -> list[int]:
        """Take parts of one step about one of these predicates, or any."""
        parts = []
        for part in self._shapes:
            first, *others = self._patterns[part]
            if not others and (first.predicate in predicates or is_variable(first.predicate)):
                parts.append(part)
        return self._taken(parts)

    def rest(self) -> list[int]:
        return self._taken(list(self._shapes))

    def _taken(self, parts: list[int]) -> list[int]:
        for part in parts:
            del self._shapes[part]
        return parts


def explain_plan(steps: Iterable[Step]) -> str:
    """Write the steps of a plan, one per line, in dataflow order."""
    return "\n".join(f"{number}. {_line(step)}" for number, step in enumerate(steps, 1))


def _line(step: Step) -> str:
    estimate = step.estimate
    count = "unknown" if estimate.count is None else str(estimate.count)
    pages = "unknown" if estimate.pages is None else str(estimate.pages + 1)
    line = f"{step.how} {' '.join(step.pattern).strip()}  expected: {count} matches"
    if estimate.dynamic:
        line += f" ({estimate.dynamic} labelled)"
    line += f" on {pages} pages  done:"
    whole = step.fragment
    if step.lookup is not None:
        whole = step.lookup.whole
        line += f" {step.lookup.keys} keys by {step.lookup.requests} requests"
    if whole is not None:
        line += f" {'and ' if step.lookup is not None else ''}{whole.pages} pages"
    if step.output is not None:
        line += f", {step.output.rows} rows"
    return line


def expected_json(
    steps: Sequence[Step], pattern: Pattern | None, *, labelled: bool
) -> dict[str, Any]:
    """Return a plan that was made and not followed as a JSON object; see `Stream.plan`.

    `labelled`: the data state their labels, so that what has none is static.
    """
    kinds = [
        "dynamic"
        if step.estimate.dynamic
        else "static"
        if labelled and step.estimate.count
        else None
        for step in steps
    ]
    return {
        "steps": [
            step_json(step, LAST) | {"change": kind, "why": ""}
            for step, kind in zip(steps, kinds, strict=True)
        ],
        "tree": [] if pattern is None else plan_tree(pattern, steps),
        "seconds": None,
    }


def step_json(step: Step, began: datetime) -> dict[str, Any]:
    """Return a step as a JSON object, ``None`` for unknown values."""
    last = None if step.output is None else step.output.last
    seconds = None if last is None or last < began else (last - began).total_seconds()
    estimate = step.estimate
    lookup = step.lookup
    whole = step.fragment if lookup is None else lookup.whole
    return {
        "pattern": " ".join(step.pattern).strip(),
        "how": step.how,
        "part": step.part,
        "fed": step.fed,
        "expected": {
            "matches": estimate.count,
            "labelled": estimate.dynamic,
            "pages": None if estimate.pages is None else estimate.pages + 1,
        },
        "done": {
            "keys": None if lookup is None else lookup.keys,
            "requests": None if lookup is None else lookup.requests,
            "pages": None if whole is None else whole.pages,
            "rows": None if step.output is None else step.output.rows,
            "seconds": seconds,
        },
    }
