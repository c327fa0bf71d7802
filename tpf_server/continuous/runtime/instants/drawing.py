"""Draw operator graphs as text and as Mermaid flowcharts.

As in the paper's figure 1, sources are below and results above.
"""

from dataclasses import dataclass, field

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Variable, is_variable
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import (
    BGP,
    Aggregate,
    Aggregated,
    Call,
    Constant,
    Exists,
    Expression,
    Filter,
    Pattern,
    VariableRef,
    children,
    walk,
)
from tpf_client.sparql.rewrite.visitor import conjuncts
from tpf_client.sparql.scopes import variables_in
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph, PatternKind

_INFIX = ("=", "!=", "<", ">", "<=", ">=", "&&", "||", "+", "-", "*", "/")


@dataclass(frozen=True, slots=True)
class DrawnOperator:
    """An operator, its kind and its inputs."""

    label: str
    kind: str
    inputs: tuple["DrawnOperator", ...]

    def as_text(self) -> str:
        """Write a line for each operator, indented under the one that consumes it."""
        lines = [self.label]
        for each in self.inputs:
            lines += [f"  {line}" for line in each.as_text().splitlines()]
        return "\n".join(lines) + "\n"

    def as_mermaid(self) -> str:
        """Draw a Mermaid flowchart with each source once."""
        nodes, edges = self._nodes_and_edges()
        lines = ["flowchart BT"]
        for name, operator in nodes:
            opening, closing = _SHAPES.get(operator.kind, ("[", "]"))
            lines.append(f'  {name}{opening}"{escaped(operator.label)}"{closing}')
        lines += [f"  {start} --> {end}" for start, end in edges]
        return "\n".join(lines) + "\n"

    def _nodes_and_edges(
        self,
    ) -> tuple[list[tuple[str, "DrawnOperator"]], list[tuple[str, str]]]:
        nodes: list[tuple[str, DrawnOperator]] = []
        edges: list[tuple[str, str]] = []
        shared: dict[DrawnOperator, str] = {}

        def node(operator: DrawnOperator) -> str:
            if operator in shared:
                return shared[operator]
            name = f"n{len(nodes)}"
            if operator.kind in ("stream", "window", "graph"):
                shared[operator] = name
            nodes.append((name, operator))
            edges.extend([(node(each), name) for each in operator.inputs])
            return name

        node(self)
        return nodes, edges


def drawn(graph: OperatorGraph) -> DrawnOperator:
    """Draw the operators of a query, from its result down to its sources."""
    query = graph.query
    return DrawnOperator(
        f"{query.form} result" + (f" {' '.join(query.variables)}" if query.variables else ""),
        "result",
        (_operator(graph, graph.pattern),),
    )


_SHAPES = {"stream": ("[/", "/]"), "window": ("[[", "]]"), "graph": ("[(", ")]"),
           "pattern": ("(", ")")}  # fmt: skip


def escaped(text: str) -> str:
    """Escape a label for Mermaid."""
    for character, entity in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return text.replace("\n", "<br/>")


def _operator(graph: OperatorGraph, pattern: Pattern) -> DrawnOperator:
    if isinstance(pattern, BGP):
        return _graph_pattern(graph, pattern)
    if isinstance(pattern, algebra.Path):
        quad = QuadPattern(pattern.subject, Variable("?.path"), pattern.object,
                           pattern.graph)  # fmt: skip
        label = f"path {pattern.subject} {pattern.path} {pattern.object}"
        return DrawnOperator(label, "pattern", tuple(_sources(graph, quad, "mixed")))
    inputs = tuple(_operator(graph, each) for each in children(pattern))
    return DrawnOperator(_label(pattern), "operator", inputs)


def _graph_pattern(graph: OperatorGraph, bgp: BGP) -> DrawnOperator:
    inputs: dict[DrawnOperator, None] = {}
    kinds: dict[str, None] = {}
    for quad in bgp.patterns:
        part = graph.part_of(quad)
        kinds[part] = None
        inputs.update(dict.fromkeys(_sources(graph, quad, part)))
    patterns = " . ".join(_quad(graph, quad) for quad in bgp.patterns)
    label = f"graph pattern ({', '.join(kinds)}) {{ {patterns} }}" if bgp.patterns else "one row"
    return DrawnOperator(label, "pattern", tuple(inputs))


def _quad(graph: OperatorGraph, quad: QuadPattern) -> str:
    text = " ".join(quad[:3])
    where = graph.graph_of(quad)
    if where != DEFAULT_GRAPH:
        text = f"GRAPH {where} {{ {text} }}"
    return f"{text} @ {quad.graph}" if quad.graph in graph.stamps else text


def _sources(graph: OperatorGraph, quad: QuadPattern, part: str) -> list[DrawnOperator]:
    source = graph.sources.of(graph.graph_of(quad)) if part != "one" else None
    if source is None:
        return []
    result = []
    if part != "streaming":
        for name in source.static:
            label = "graph " + (name if name != DEFAULT_GRAPH else "of the repository")
            result.append(DrawnOperator(label, "graph", ()))
    if part != "static":
        for stream in source.streams:
            clause = graph.clause_of(stream)
            below = DrawnOperator(f"stream {clause.stream}", "stream", ())
            result.append(DrawnOperator(f"window {clause.window}", "window", (below,)))
    return result


def _label(pattern: Pattern) -> str:
    match pattern:
        case Aggregated(_, variable, expression, keys):
            return f"aggregation {variable} = {expression_text(expression)} by {' '.join(keys)}"
        case algebra.Filter(_, condition):
            return f"filter {expression_text(condition)}"
        case algebra.Extend(_, variable, expression):
            return f"extend {variable} = {expression_text(expression)}"
        case algebra.LeftJoin(_, _, condition):
            return "left join" + (f" on {expression_text(condition)}" if condition else "")
        case algebra.Project(_, variables):
            return f"project {' '.join(variables)}"
        case algebra.Group(_, keys, aggregates):
            result = [f"{name} = {expression_text(each)}" for name, each in aggregates]
            by = [expression_text(each) for _, each in keys]
            return f"group by {' '.join(by) or 'nothing'}: {', '.join(result)}"
        case algebra.OrderBy(_, conditions):
            return "order by " + ", ".join(expression_text(each.expression) for each in conditions)
        case algebra.Slice(_, offset, limit):
            return f"slice from {offset}" + ("" if limit is None else f", at most {limit}")
        case algebra.Values(variables, rows):
            return f"values {' '.join(variables)}: {len(rows)} row(s)"
        case _:
            return type(pattern).__name__.lower()


def expression_text(expression: Expression) -> str:
    """Write an expression about as a query does."""
    match expression:
        case Constant(term):
            return str(term)
        case VariableRef(variable):
            return str(variable)
        case Exists(_, negated):
            return "NOT EXISTS {…}" if negated else "EXISTS {…}"
        case Aggregate(name, argument, distinct):
            inner = "*" if argument is None else expression_text(argument)
            return f"{name}({'DISTINCT ' if distinct else ''}{inner})"
        case Call(name, (left, right)) if name in _INFIX:
            return f"({expression_text(left)} {name} {expression_text(right)})"
        case Call(name, arguments):
            return f"{name}({', '.join(map(expression_text, arguments))})"


# The denotational graph (D-graph): the terms of a query, and which of them are static.
#
# A view on the operator graph (paper 003, section 4): each variable, IRI or literal is a vertex,
# each triple pattern two edges, a condition a note on the vertices that it is about, an
# aggregation a vertex that holds its group, and the sources group the vertices that emerge from
# them.


@dataclass(frozen=True, slots=True)
class AggregateVertex:
    """An aggregation."""

    variable: Variable
    function: str
    parameter: str | None
    group: tuple[Variable, ...]


@dataclass
class DenotationalGraph:
    """The terms of a query.

    Attributes:
        sources: vertices that emerge from each static graph or stream.
        edges: from subject to predicate, and from predicate to object.
        parts: triple patterns by kind.
    """

    sources: dict[str, dict[str, None]] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    aggregates: list[AggregateVertex] = field(default_factory=list)
    selected: tuple[Variable, ...] = ()
    parts: dict[PatternKind, list[QuadPattern]] = field(default_factory=dict)

    def as_text(self) -> str:
        """Write the partition and its crossing variables."""
        lines = []
        for part, patterns in self.parts.items():
            lines.append(f"{part}:")
            lines += ["  " + " ".join(each[:3]) for each in patterns]
        crossing = self.crossing
        lines.append("joined on: " + (" ".join(crossing) or "nothing"))
        for name, notes in self.notes.items():
            lines.append(f"{name} where {' and '.join(notes)}")
        for each in self.aggregates:
            lines.append(
                f"{each.variable} = {each.function}({each.parameter or ''}) of the group "
                f"{{{', '.join(each.group)}}}"
            )
        return "\n".join(lines) + "\n"

    @property
    def crossing(self) -> tuple[str, ...]:
        """Variables that static and streaming patterns share."""
        static = {name for each in self.parts.get("static", ()) for name in each[:3]}
        other = {
            name
            for part in ("streaming", "mixed")
            for each in self.parts.get(part, ())
            for name in each[:3]
        }
        return tuple(sorted(name for name in static & other if is_variable(name)))

    def as_mermaid(self) -> str:
        """Draw a Mermaid flowchart; variables are rounded, selected ones filled."""
        names: dict[str, str] = {}
        lines = ["flowchart LR"]

        def vertex(term: str) -> str:
            if term not in names:
                names[term] = f"v{len(names)}"
                label = escaped("\n".join([term, *self.notes.get(term, ())]))
                opening, closing = ("([", "])") if is_variable(term) else ("[", "]")
                lines.append(f'  {names[term]}{opening}"{label}"{closing}')
            return names[term]

        for number, (source, terms) in enumerate(self.sources.items()):
            lines.append(f'  subgraph s{number}["{escaped(source)}"]')
            for term in terms:
                vertex(term)
            lines.append("  end")
        for number, each in enumerate(self.aggregates):
            lines.append(f'  subgraph a{number}["{each.function}"]')
            lines.append(f'    g{number}[/"{escaped("{" + ", ".join(each.group) + "}")}"/]')
            lines.append("  end")
            if each.parameter is not None:
                lines.append(f"  {vertex(each.parameter)} --> a{number}")
            lines.append(f"  a{number} --> {vertex(each.variable)}")
        for start, end in self.edges:
            lines.append(f"  {vertex(start)} --> {vertex(end)}")
        filled = [names[name] for name in self.selected if name in names]
        if filled:
            lines.append("  classDef selected fill:#ddd")
            lines.append(f"  class {','.join(filled)} selected")
        return "\n".join(lines) + "\n"


def denotational_graph(graph: OperatorGraph) -> DenotationalGraph:
    """Derive the denotational graph of an operator graph."""
    result = DenotationalGraph(selected=graph.query.variables)
    for pattern in walk(graph.pattern):
        match pattern:
            case BGP(patterns):
                for quad in patterns:
                    _add(graph, result, quad)
            case Aggregated(_, variable, Aggregate(function, argument), keys):
                parameter = str(argument.variable) if isinstance(argument, VariableRef) else None
                result.aggregates.append(AggregateVertex(variable, function, parameter, keys))
            case Filter(_, condition):
                for each in conjuncts(condition):
                    for name in sorted(variables_in(each)):
                        notes = result.notes.setdefault(name, [])
                        if expression_text(each) not in notes:
                            notes.append(expression_text(each))
            case _:
                pass
    return result


def _add(graph: OperatorGraph, result: DenotationalGraph, quad: QuadPattern) -> None:
    part = graph.part_of(quad)
    subject, predicate, object_ = quad[:3]
    result.parts.setdefault(part, []).append(quad)
    result.edges[subject, predicate] = None
    result.edges[predicate, object_] = None
    source = graph.source_of(quad)
    names = []
    if part != "streaming":
        names += ["repository" if each == DEFAULT_GRAPH else str(each) for each in source.static]
    if part != "static":
        names += [f"stream {each}" for each in source.streams]
    for name in names:
        result.sources.setdefault(name, {}).update(dict.fromkeys((subject, predicate, object_)))
