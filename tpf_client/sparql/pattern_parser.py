"""Graph patterns. Source: SPARQL 1.1 Query Language, 19.8 (rules 53 to 74) and 18.2.2."""

from collections.abc import Iterator
from contextlib import contextmanager

from annotations.terms import (
    DEFAULT_GRAPH,
    Term,
    TermOrVariable,
    Variable,
    is_variable,
)
from tpf_client.sparql.algebra import (
    EMPTY_GROUP,
    Call,
    Expression,
    Extend,
    Filter,
    LeftJoin,
    Minus,
    Pattern,
    Service,
    Union,
    Values,
    VariableRef,
)
from tpf_client.sparql.depth import balanced
from tpf_client.sparql.rewrite.graph import grounded, same_if_joined_before
from tpf_client.sparql.rewrite.visitor import join, renamed
from tpf_client.sparql.scopes import in_scope, mentioned, variables_in
from tpf_client.sparql.triples_parser import TriplesParser


def _both(left: Expression, right: Expression) -> Expression:
    return Call("&&", (left, right))


class PatternParser(TriplesParser):
    """Reads graph patterns into algebra."""

    def __init__(self, text: str, base: str | None = None) -> None:
        super().__init__(text, base)
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
        if same_if_joined_before(pattern, name):
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
        if self.at("<<("):
            opening = self.token.position
            term = self.triple_term()
            if is_variable(term):
                self.fail("a triple term of data is of IRIs and literals", opening)
            return Term(term)
        return self.literal() if self.at_literal() else self.iri()

    def _variable_or_iri(self) -> TermOrVariable:
        return self.variable() if self.token.kind == "variable" else self.iri()
