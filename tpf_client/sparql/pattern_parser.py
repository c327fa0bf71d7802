"""Graph patterns. Source: SPARQL 1.1 Query Language, 19.8 (rules 53 to 109) and 18.2.2."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from annotations.terms import (
    DEFAULT_GRAPH,
    QuadPattern,
    Term,
    TermOrVariable,
    Variable,
    is_variable,
)
from tpf_client.sparql.algebra import (
    BGP,
    EMPTY_GROUP,
    Alternative,
    Call,
    Distinct,
    Expression,
    Extend,
    Filter,
    Group,
    Inverse,
    Join,
    LeftJoin,
    Link,
    Minus,
    NegatedSet,
    OrderBy,
    Path,
    PathExpression,
    Pattern,
    Project,
    Reduced,
    Repeat,
    Sequence,
    Service,
    Slice,
    Union,
    Values,
    VariableRef,
    always_bound,
    in_scope,
    mentioned,
    renamed,
    variables_in,
)
from tpf_client.sparql.depth import balanced
from tpf_client.sparql.expression_parser import ExpressionParser
from tpf_client.sparql.paths import path_pattern

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_FIRST, _REST, _NIL = (Term(f"<{_RDF}{name}>") for name in ("first", "rest", "nil"))

Emit = Callable[[TermOrVariable, PathExpression | TermOrVariable, TermOrVariable], None]


def join(left: Pattern, right: Pattern) -> Pattern:
    """The join of two patterns, basic graph patterns melted into one."""
    if left == EMPTY_GROUP:
        return right
    if right == EMPTY_GROUP:
        return left
    if isinstance(left, BGP) and isinstance(right, BGP):
        return BGP(left.patterns + right.patterns)
    return Join(left, right)


def _both(left: Expression, right: Expression) -> Expression:
    return Call("&&", (left, right))


def graph_names(graph: TermOrVariable, fresh: Callable[[], Variable]) -> Pattern:
    """The names of all named graphs; of one name, an empty solution if there is such a graph."""
    quads = BGP((QuadPattern(fresh(), fresh(), fresh(), graph),))
    if is_variable(graph):
        return Distinct(Project(quads, (Variable(graph),)))
    return Slice(Project(quads, ()), 0, 1)


def grounded(pattern: Pattern, graph: TermOrVariable, fresh: Callable[[], Variable]) -> Pattern:
    """A pattern for GRAPH, every solution of which lies in a graph that there is.

    GRAPH ?g is a union over all named graphs (section 18.6). Said with ?g as the graph of quad
    patterns it is the same as long as what has no such pattern is joined with the names of graphs.
    That may be done outside, but for where the absence of a solution means something: there the
    left side must have the names by itself.
    """
    if graph == DEFAULT_GRAPH or _lies_in(pattern, graph):
        return pattern
    return join(graph_names(graph, fresh), pattern)


def _lies_in(pattern: Pattern, graph: TermOrVariable) -> bool:
    """Whether each solution is about a quad of this graph."""
    match pattern:
        case BGP(quads):
            return any(quad.graph == graph for quad in quads)
        case Path(_, path, _, there):
            # A path of no steps needs no quad.
            steps = isinstance(path, Repeat) and path.at_least_once
            return there == graph and (steps or is_variable(graph))
        case Join(left, right):
            return _lies_in(left, graph) or _lies_in(right, graph)
        case Union(left, right):
            return _lies_in(left, graph) and _lies_in(right, graph)
        case LeftJoin(inner) | Minus(inner) | Extend(inner) | Filter(inner):
            return _lies_in(inner, graph)
        case OrderBy(inner) | Distinct(inner) | Reduced(inner) | Slice(inner):
            return _lies_in(inner, graph)
        case Project(inner, variables):
            return _lies_in(inner, graph) and (graph in variables or not is_variable(graph))
        case Group(inner, keys):
            kept = any(key == (graph, VariableRef(Variable(graph))) for key in keys)
            return _lies_in(inner, graph) and (kept or (bool(keys) and not is_variable(graph)))
        case _:
            return False


def _same_if_joined_before(pattern: Pattern, name: Variable) -> bool:
    """Whether a variable of a pattern may as well have its value before the pattern is evaluated.

    So it is where the value can do nothing but leave solutions out: where what looks at it looks at
    a value that it has for certain.
    """
    if name not in mentioned(pattern):
        return True
    match pattern:
        case BGP() | Values():
            return True
        case Path(subject, path, object_):
            # A path of no steps would begin at any term.
            steps = isinstance(path, Repeat) and path.at_least_once
            return steps or name not in (subject, object_)
        case Join(left, right) | Union(left, right):
            return _same_if_joined_before(left, name) and _same_if_joined_before(right, name)
        case Filter(inner, expression) | Extend(inner, _, expression):
            bound = name not in variables_in(expression) or name in always_bound(inner)
            return name in in_scope(inner) and bound and _same_if_joined_before(inner, name)
        case _:
            return False


class PatternParser(ExpressionParser):
    """Reads graph patterns into algebra."""

    def __init__(self, text: str, base: str | None = None) -> None:
        super().__init__(text, base)
        self._graph: TermOrVariable = DEFAULT_GRAPH
        # Blank node labels are scoped to one basic graph pattern (section 4.1.4).
        self._block = 0
        self._blocks_opened = 0
        self._labels: dict[str, int] = {}
        self._in_template = False
        self._scope: tuple[Pattern, set[Variable]] = (EMPTY_GROUP, set())

    def sub_select(self) -> Pattern:
        """A SELECT inside a group."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------- groups

    def group_graph_pattern(self) -> Pattern:
        """What stands in braces, its filters around it."""
        pattern, filters = self._group()
        for condition in filters:
            pattern = Filter(self._on_ground(pattern, variables_in(condition)), condition)
        return pattern

    def _group(self) -> tuple[Pattern, list[Expression]]:
        with self.nested():
            return self._group_elements()

    def _group_elements(self) -> tuple[Pattern, list[Expression]]:
        self.expect("{")
        if self.at_word("SELECT"):
            pattern = self.sub_select()
            self.expect("}")
            return pattern, []
        pattern = EMPTY_GROUP
        filters: list[Expression] = []
        self._open_block()
        while not self.at("}"):
            if self.take_word("FILTER"):
                filters.append(self.constraint())
            elif self._at_triples():
                pattern = join(pattern, self._triples_block())
                if self._at_triples():
                    self.expected("'.' or '}'")
                continue
            else:
                pattern = self.element(pattern)
                self._open_block()
            self.take(".")
        self.expect("}")
        self._open_block()
        return pattern, filters

    def _open_block(self) -> None:
        self._blocks_opened += 1
        self._block = self._blocks_opened

    def element(self, before: Pattern) -> Pattern:
        """One element of a group that is neither triples nor FILTER, put to what came before."""
        if self.take_word("OPTIONAL"):
            optional, filters = self._group()
            condition = balanced(_both, filters) if filters else None
            used = mentioned(optional) | (variables_in(condition) if condition else frozenset())
            return LeftJoin(self._on_ground(before, used), optional, condition)
        if self.take_word("MINUS"):
            removed = self.group_graph_pattern()
            apart = (Variable(self._graph),) if is_variable(self._graph) else ()
            return Minus(self._on_ground(before, mentioned(removed)), removed, apart)
        if self.take_word("GRAPH"):
            return join(before, self._graph_pattern())
        if self.take_word("SERVICE"):
            silent = self.take_word("SILENT")
            endpoint = self._variable_or_iri()
            with self._inside(DEFAULT_GRAPH):
                return join(before, Service(endpoint, self.group_graph_pattern(), silent))
        if self.take_word("BIND"):
            self.expect("(")
            expression = self.expression()
            self.expect_word("AS")
            place = self.token.position
            variable = self.variable()
            if variable in self._scope_of(before):
                self.fail(f"{variable} has a value already", place)
            self.expect(")")
            return Extend(self._on_ground(before, variables_in(expression)), variable, expression)
        if self.take_word("VALUES"):
            return join(before, self.inline_data())
        if not self.at("{"):
            self.expected("a triple pattern, a group or '}'")
        branches = [self.group_graph_pattern()]
        while self.take_word("UNION"):
            branches.append(self.group_graph_pattern())
        return join(before, balanced(Union, branches))

    def _scope_of(self, pattern: Pattern) -> set[Variable]:
        """The variables in scope; a step further than where it was asked last takes one step."""
        known, scope = self._scope
        if known is not pattern:
            if isinstance(pattern, Extend) and pattern.input is known:
                scope.add(pattern.variable)
            else:
                scope = set(in_scope(pattern))
            self._scope = pattern, scope
        return scope

    @contextmanager
    def _inside(self, graph: TermOrVariable) -> Iterator[None]:
        outer, self._graph = self._graph, graph
        yield
        self._graph = outer

    def _graph_pattern(self) -> Pattern:
        graph = self._variable_or_iri()
        if not is_variable(graph):
            with self._inside(graph):
                return grounded(self.group_graph_pattern(), graph, self.fresh)
        # Section 18.6 evaluates the pattern in each graph, and joins ?g with the result: inside, it
        # is a variable like any other.
        hidden, name = self.fresh("g"), Variable(graph)
        with self._inside(hidden):
            pattern = grounded(self.group_graph_pattern(), hidden, self.fresh)
        if _same_if_joined_before(pattern, name):
            return renamed(pattern, hidden, name)
        inner = self.fresh("g")
        pattern = renamed(renamed(pattern, name, inner), hidden, name)
        either = Call("!", (Call("BOUND", (VariableRef(inner),)),))
        equal = Call("SAMETERM", (VariableRef(inner), VariableRef(name)))
        return Filter(pattern, Call("||", (either, equal)))

    def _on_ground(self, pattern: Pattern, used: frozenset[Variable]) -> Pattern:
        """What stands on the left of something that uses these variables, maybe that of GRAPH."""
        return grounded(pattern, self._graph, self.fresh) if self._graph in used else pattern

    def inline_data(self) -> Values:
        """What follows VALUES."""
        rows: list[tuple[Term | None, ...]] = []
        if self.token.kind == "variable":
            variables = [self.variable()]
            self.expect("{")
            while not self.take("}"):
                rows.append((self._data_value(),))
            return Values(tuple(variables), tuple(rows))
        self.expect("(")
        variables = []
        while not self.take(")"):
            position = self.token.position
            name = self.variable()
            if name in variables:
                self.fail(f"{name} is listed twice", position)
            variables.append(name)
        self.expect("{")
        while not self.take("}"):
            opening = self.expect("(")
            row = []
            while not self.take(")"):
                row.append(self._data_value())
            if len(row) != len(variables):
                self.fail(f"{len(variables)} value(s) wanted, not {len(row)}", opening.position)
            rows.append(tuple(row))
        return Values(tuple(variables), tuple(rows))

    def _data_value(self) -> Term | None:
        if self.take_word("UNDEF"):
            return None
        return self.literal() if self.at_literal() else self.iri()

    def _variable_or_iri(self) -> TermOrVariable:
        return self.variable() if self.token.kind == "variable" else self.iri()

    # ---------------------------------------------------------------------------- triples

    def _at_triples(self) -> bool:
        return (
            self.token.kind in ("variable", "blank")
            or self.at_iri()
            or self.at_literal()
            or self.at("(", "[")
        )

    def _triples_block(self) -> Pattern:
        found: list[Pattern] = []

        def emit(
            subject: TermOrVariable, verb: PathExpression | TermOrVariable, object_: TermOrVariable
        ) -> None:
            if isinstance(verb, str):
                found.append(BGP((QuadPattern(subject, verb, object_, self._graph),)))
            else:
                found.append(path_pattern(subject, verb, object_, self._graph, self.fresh))

        self.triples(emit)
        pattern: Pattern = EMPTY_GROUP
        for each in found:
            pattern = join(pattern, each)
        return pattern

    def triples(self, emit: Emit) -> None:
        """Triples that share a subject, separated by full stops."""
        while self._at_triples():
            if self.at("(", "["):
                bare = self.ahead().text == ("]" if self.at("[") else ")")
                subject = self._node(emit)
                if bare or not (self.at(".", "}") or self.token.kind == "end"):
                    self._property_list(subject, emit)
            else:
                subject = self._node(emit)
                self._property_list(subject, emit)
            if not self.take("."):
                return

    def _property_list(self, subject: TermOrVariable, emit: Emit) -> None:
        verb = self._verb()
        while True:
            emit(subject, verb, self._node(emit))
            while self.take(","):
                emit(subject, verb, self._node(emit))
            if not self.at(";"):
                return
            while self.take(";"):
                pass
            if not self._at_verb():
                return
            verb = self._verb()

    def _at_verb(self) -> bool:
        return (
            self.token.kind == "variable"
            or self.at_iri()
            or (self.token.kind == "word" and self.token.text == "a")
            or (not self._in_template and self.at("^", "!", "("))
        )

    def _verb(self) -> PathExpression | TermOrVariable:
        if not self._at_verb():
            self.expected("a predicate")
        if self.token.kind == "variable":
            return self.variable()
        if self._in_template:
            return self.verb_iri()
        path = self._path_alternative()
        return path.predicate if isinstance(path, Link) else path

    def _node(self, emit: Emit) -> TermOrVariable:
        if self.token.kind == "variable":
            return self.variable()
        if self.at_literal():
            return self.literal()
        if self.token.kind == "blank":
            return self._labelled(self.advance().text[2:])
        if self.at("[", "("):
            with self.nested():
                if self.at("["):
                    return self._blank_node_property_list(emit)
                return self._collection(emit)
        if not self.at_iri():
            self.expected("a term or a variable")
        return self.iri()

    def _labelled(self, label: str) -> TermOrVariable:
        if self._in_template:
            return Term(f"_:{label}")
        if self._labels.setdefault(label, self._block) != self._block:
            self.fail(
                f"_:{label} occurs in two basic graph patterns",
                self.ahead(-1).position,
            )
        return Variable(f"?.b_{label}")

    def _anonymous(self) -> TermOrVariable:
        name = self.fresh()
        return Term(f"_:anon·{name[2:]}") if self._in_template else name

    def _blank_node_property_list(self, emit: Emit) -> TermOrVariable:
        self.expect("[")
        node = self._anonymous()
        if not self.at("]"):
            self._property_list(node, emit)
        self.expect("]")
        return node

    def _collection(self, emit: Emit) -> TermOrVariable:
        self.expect("(")
        if self.take(")"):
            return _NIL
        first = node = self._anonymous()
        while True:
            emit(node, _FIRST, self._node(emit))
            if self.take(")"):
                emit(node, _REST, _NIL)
                return first
            following = self._anonymous()
            emit(node, _REST, following)
            node = following

    # ------------------------------------------------------------------------------ paths

    def _path_alternative(self) -> PathExpression:
        paths = [self._path_sequence()]
        while self.take("|"):
            paths.append(self._path_sequence())
        return balanced(Alternative, paths)

    def _path_sequence(self) -> PathExpression:
        paths = [self._path_step()]
        while self.take("/"):
            paths.append(self._path_step())
        return balanced(Sequence, paths)

    def _path_step(self) -> PathExpression:
        if self.take("^"):
            return Inverse(self._path_repeated())
        return self._path_repeated()

    def _path_repeated(self) -> PathExpression:
        path: PathExpression
        if self.take("!"):
            path = self._negated_set()
        elif self.take("("):
            with self.nested():
                path = self._path_alternative()
            self.expect(")")
        else:
            path = Link(self.verb_iri())
        if self.take("*"):
            return Repeat(path, at_least_once=False, many=True)
        if self.take("+"):
            return Repeat(path, at_least_once=True, many=True)
        if self.take("?"):
            return Repeat(path, at_least_once=False, many=False)
        return path

    def _negated_set(self) -> NegatedSet:
        forward: list[Term] = []
        backward: list[Term] = []

        def one() -> None:
            (backward if self.take("^") else forward).append(self.verb_iri())

        if not self.take("("):
            one()
        elif not self.take(")"):
            one()
            while self.take("|"):
                one()
            self.expect(")")
        return NegatedSet(tuple(forward), tuple(backward))
