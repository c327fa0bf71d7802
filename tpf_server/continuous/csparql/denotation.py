"""The denotational graph (D-graph): the terms of a query, and which of them are static.

A view on the operator graph (paper 003, section 4): each variable, IRI or literal is a vertex, each
triple pattern two edges, a condition a note on the vertices that it is about, an aggregation a
vertex that holds its group, and the sources group the vertices that emerge from them.
"""

from dataclasses import dataclass, field

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Variable, is_variable
from tpf_client.sparql.algebra import BGP, Aggregate, Aggregated, Filter, VariableRef, walk
from tpf_client.sparql.rewrite.conditions import conjuncts
from tpf_client.sparql.scopes import variables_in
from tpf_server.continuous.csparql.drawing import escaped, expression_text, quoted
from tpf_server.continuous.csparql.operator_graph import OperatorGraph, PatternKind


@dataclass(frozen=True, slots=True)
class AggregateVertex:
    """An aggregation: the variable that it binds, the function, its parameter and its group."""

    variable: Variable
    function: str
    parameter: str | None
    group: tuple[Variable, ...]


@dataclass
class DenotationalGraph:
    """The terms of a query.

    Attributes:
        sources: the vertices that emerge from each source (a static graph or a stream).
        edges: from subject to predicate and from predicate to object, for each triple pattern.
        notes: the conditions on each variable.
        aggregates: the aggregations.
        selected: the variables of the result.
        parts: the triple patterns that are static, streaming, or may be both.
    """

    sources: dict[str, dict[str, None]] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    aggregates: list[AggregateVertex] = field(default_factory=list)
    selected: tuple[Variable, ...] = ()
    parts: dict[PatternKind, list[QuadPattern]] = field(default_factory=dict)

    def as_text(self) -> str:
        """The partition and what crosses it, in lines."""
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
        """The variables that static and streaming patterns share."""
        static = {name for each in self.parts.get("static", ()) for name in each[:3]}
        other = {
            name
            for part in ("streaming", "mixed")
            for each in self.parts.get(part, ())
            for name in each[:3]
        }
        return tuple(sorted(name for name in static & other if is_variable(name)))

    def as_mermaid(self) -> str:
        """A Mermaid flowchart; a rounded vertex is a variable, a filled one is selected."""
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

    def as_graphviz(self) -> str:
        """A graph in the DOT language; an ellipse is a variable, a filled one is selected."""
        lines = ["digraph terms {", "  rankdir=LR;"]
        terms = dict.fromkeys(term for edge in self.edges for term in edge)
        for each in self.aggregates:
            terms.update(dict.fromkeys(filter(None, (each.parameter, each.variable))))
        names = {term: f"v{number}" for number, term in enumerate(terms)}
        for term, name in names.items():
            label = quoted("\n".join([term, *self.notes.get(term, ())]))
            shape = "ellipse" if is_variable(term) else "box"
            style = ", style=filled" if term in self.selected else ""
            lines.append(f"  {name} [label={label}, shape={shape}{style}];")
        for number, (source, inside) in enumerate(self.sources.items()):
            # What static and streaming patterns share stands between their sources.
            others = {t for other, terms in self.sources.items() if other != source for t in terms}
            members = " ".join(f"{names[term]};" for term in inside if term not in others)
            lines.append(f"  subgraph cluster_{number} {{ label={quoted(source)}; {members} }}")
        for number, each in enumerate(self.aggregates):
            group = f"{each.function} of {{{', '.join(each.group)}}}"
            lines.append(f"  a{number} [label={quoted(group)}, shape=component];")
            if each.parameter is not None:
                lines.append(f"  {names[each.parameter]} -> a{number};")
            lines.append(f"  a{number} -> {names[each.variable]};")
        lines += [f"  {names[start]} -> {names[end]};" for start, end in self.edges]
        return "\n".join([*lines, "}"]) + "\n"


def denotational_graph(graph: OperatorGraph) -> DenotationalGraph:
    """The denotational graph of an operator graph."""
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
