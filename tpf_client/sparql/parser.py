"""SPARQL text to algebra. Source: SPARQL 1.1 Query Language, sections 19.8 and 18.2.

Written by hand, because the text must come through as it stands (lexical forms of literals), the
errors must point at the place, several threads parse at the same time, and the languages of
continuous queries extend this grammar. It takes well below a millisecond; `parse_query` remembers.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from annotations.terms import Term, TermOrVariable, TriplePattern, Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    NOTHING,
    Aggregate,
    Call,
    DatasetClause,
    Distinct,
    Expression,
    Extend,
    Filter,
    Group,
    Join,
    Minus,
    OrderBy,
    OrderCondition,
    PathExpression,
    Pattern,
    Project,
    Query,
    Reduced,
    Slice,
    Union,
    Values,
    VariableRef,
)
from tpf_client.sparql.depth import check_depth
from tpf_client.sparql.modifiers_parser import ModifiersParser
from tpf_client.sparql.rewrite.graph import graph_names, grounded
from tpf_client.sparql.rewrite.visitor import join
from tpf_client.sparql.scopes import in_scope, variables_in


@lru_cache(maxsize=512)
def parse_query(text: str, base: str | None = None) -> Query:
    """The algebra of a query.

    Args:
        text: SPARQL 1.1 Query.
        base: what relative IRIs are relative to, where the text has no BASE.

    Raises:
        QuerySyntaxError: the text is not a query.
        UnsupportedQueryError: it is, but it cannot be said in our algebra.
    """
    return QueryParser(text, base).query()


def with_dataset(text: str, dataset: DatasetClause) -> str:
    """The text of a query over another dataset than it says.

    Args:
        text: SPARQL 1.1 Query.
        dataset: what stands for FROM and FROM NAMED.

    Raises:
        QuerySyntaxError: the text is not a query.
    """
    parser = QueryParser(text)
    parser.query()
    clauses = [f"FROM {name}" for name in dataset.default]
    clauses += [f"FROM NAMED {name}" for name in dataset.named]
    before, after = parser.text[: parser.dataset_at[0]], parser.text[parser.dataset_at[1] :]
    return f"{before} {' '.join(clauses)} {after}"


class QueryParser(ModifiersParser):
    """Reads queries.

    Attributes:
        dataset_at: where the text says, or may say, FROM: from this character to that one.
    """

    dataset_at = (0, 0)

    def query(self) -> Query:
        """The whole text as one query."""
        self.prologue()
        form = self.token.text.upper() if self.token.kind == "word" else ""
        match form:
            case "SELECT":
                query = self._select()
            case "ASK":
                query = self._ask()
            case "CONSTRUCT":
                query = self._construct()
            case "DESCRIBE":
                query = self._describe()
            case _:
                self.expected("SELECT, ASK, CONSTRUCT or DESCRIBE")
        if self.token.kind != "end":
            self.expected("the end of the query")
        check_depth(query)
        return query

    def prologue(self) -> None:
        """BASE, PREFIX and VERSION declarations."""
        while True:
            if self.take_word("BASE"):
                if self.token.kind != "iri":
                    self.expected("an IRI in angle brackets")
                self.base = self.iri()[1:-1]
            elif self.take_word("PREFIX"):
                name = self.token
                if name.kind != "name" or not name.text.endswith(":") or name.text.count(":") != 1:
                    self.expected("a prefix with its colon")
                self.advance()
                if self.token.kind != "iri":
                    self.expected("an IRI in angle brackets")
                self.prefixes[name.text[:-1]] = self.iri()[1:-1]
            elif self.take_word("VERSION"):
                # It tells which features to expect; what there is is read in any case.
                text = self.token.text
                if self.token.kind != "string" or text.startswith(('"""', "'''")):
                    self.expected("a version in single or double quotation marks")
                self.advance()
            else:
                return

    # ------------------------------------------------------------------------------ forms

    def _select(self) -> Query:
        pattern, variables, dataset = self._select_query(outermost=True)
        return Query("SELECT", pattern, variables, dataset=dataset)

    def sub_select(self) -> Pattern:
        """A SELECT inside a group, with the VALUES behind it."""
        pattern = self._select_query(outermost=False)[0]
        if not is_variable(self._graph):
            return pattern
        graph = Variable(self._graph)
        return grounded(self._per_graph(pattern, graph), graph, self.fresh)

    def _per_graph(self, pattern: Pattern, graph: Variable) -> Pattern:
        """Solution modifiers as they apply to each named graph by itself."""
        match pattern:
            case Slice(inner):
                return replace(pattern, input=self._per_graph(inner, graph), by=(graph,))
            case Project(inner, variables) if graph not in variables:
                return Project(self._per_graph(inner, graph), (*variables, graph))
            case Distinct(inner) | Reduced(inner) | OrderBy(inner) | Extend(inner) | Filter(inner):
                return replace(pattern, input=self._per_graph(inner, graph))
            case Join(left, Values() as data):
                return Join(self._per_graph(left, graph), data)
            case Group(inner, keys, aggregates):
                grouped = Group(inner, (*keys, (graph, VariableRef(graph))), aggregates)
                if keys:
                    return grouped
                # A graph without solutions has one group too, of nothing.
                rest = Minus(graph_names(graph, self.fresh), Project(grouped, (graph,)))
                return Union(grouped, Join(rest, Group(NOTHING, (), aggregates)))
            case _:
                return pattern

    def _ask(self) -> Query:
        self.expect_word("ASK")
        dataset = self._dataset()
        pattern = self._where()
        pattern, _ = self._modified(pattern, [], star=True)
        return Query("ASK", pattern, dataset=dataset)

    def _construct(self) -> Query:
        self.expect_word("CONSTRUCT")
        if self.at("{"):
            template = self._template()
            dataset = self._dataset()
            pattern = self._where()
        else:
            dataset = self._dataset()
            self.expect_word("WHERE")
            start = self._place
            template = self._template()
            self._place = start
            pattern = self.group_graph_pattern()
        pattern, _ = self._modified(pattern, [], star=True)
        pattern, template = self.put_together(pattern, template)
        return Query("CONSTRUCT", pattern, template=template, dataset=dataset)

    def _template(self) -> tuple[TriplePattern, ...]:
        triples: list[TriplePattern] = []

        def emit(
            subject: TermOrVariable, verb: PathExpression | TermOrVariable, object_: TermOrVariable
        ) -> None:
            assert isinstance(verb, str)
            triples.append(TriplePattern(subject, verb, object_))

        self.expect("{")
        self._in_template = True
        self.triples(emit)
        self._in_template = False
        self.expect("}")
        return tuple(triples)

    def _describe(self) -> Query:
        self.expect_word("DESCRIBE")
        variables: list[Variable] = []
        described: list[Term] = []
        star = self.take("*")
        while not star and (self.token.kind == "variable" or self.at_iri()):
            if self.token.kind == "variable":
                variables.append(self.variable())
            else:
                described.append(self.iri())
        if not star and not variables and not described:
            self.expected("what to describe")
        dataset = self._dataset()
        pattern: Pattern = BGP(())
        if self.at_word("WHERE") or self.at("{"):
            pattern = self._where()
        items: list[tuple[Variable, Expression | None]] = [(name, None) for name in variables]
        pattern, shown = self._modified(pattern, items, star=star)
        return Query(
            "DESCRIBE", pattern, shown if star else tuple(variables), (), tuple(described), dataset
        )

    def _dataset(self) -> DatasetClause:
        default: list[Term] = []
        named: list[Term] = []
        begin = end = self.token.position
        while self.at_word("FROM"):
            start = self.advance().position
            is_named = self.take_word("NAMED")
            if not self._from_stream(start, is_named):
                name_end = self.token.end
                (named if is_named else default).append(self.iri())
                end = name_end
        self.dataset_at = begin, end
        return DatasetClause(tuple(default), tuple(named))

    def _from_stream(self, start: int, is_named: bool) -> bool:  # noqa: ARG002 - SPARQL has none
        """Read what a language for streams has after FROM; whether it was that."""
        return False

    def _where(self) -> Pattern:
        self.take_word("WHERE")
        if not self.at("{"):
            self.expected("'{'")
        return self.group_graph_pattern()

    # ----------------------------------------------------------------------------- SELECT

    def _select_query(
        self, *, outermost: bool
    ) -> tuple[Pattern, tuple[Variable, ...], DatasetClause]:
        self.expect_word("SELECT")
        distinct = self.take_word("DISTINCT")
        reduced = not distinct and self.take_word("REDUCED")
        items: list[tuple[Variable, Expression | None]] = []
        star = self.take("*")
        while not star and (self.token.kind == "variable" or self.at("(")):
            if self.token.kind == "variable":
                items.append((self.variable(), None))
                continue
            self.expect("(")
            expression = self._expression_with_aggregates()
            self.expect_word("AS")
            place = self.token.position
            name = self.variable()
            if any(name == other for other, _ in items):
                self.fail(f"{name} is selected twice", place)
            items.append((name, expression))
            self.expect(")")
        if not star and not items:
            self.expected("'*' or what to select")
        dataset = self._dataset() if outermost else DatasetClause()
        pattern = self._where()
        if is_variable(self._graph):
            pattern = grounded(pattern, self._graph, self.fresh)
        pattern, variables = self._modified(
            pattern, items, star=star, distinct=distinct, reduced=reduced
        )
        return pattern, variables, dataset

    def _expression_with_aggregates(self) -> Expression:
        self._aggregates_allowed = True
        expression = self.expression()
        self._aggregates_allowed = False
        return expression

    def _modified(
        self,
        pattern: Pattern,
        items: list[tuple[Variable, Expression | None]],
        *,
        star: bool,
        distinct: bool = False,
        reduced: bool = False,
    ) -> tuple[Pattern, tuple[Variable, ...]]:
        """Read the solution modifiers, and put them and the selection around a pattern."""
        start = self.token.position
        keys = self._group_by()
        having = self._having()
        order = self._order_by()
        offset, limit = self._limits()
        data = self.inline_data() if self.take_word("VALUES") else None

        lifted: dict[Aggregate, Variable] = {}
        items = [(name, each and self._lift(each, lifted)) for name, each in items]
        having = [self._lift(each, lifted) for each in having]
        order = [
            OrderCondition(self._lift(each.expression, lifted), each.descending) for each in order
        ]
        scope = set(in_scope(pattern))
        if keys is not None or lifted or having:
            if star:
                self.fail("'*' cannot be grouped", start)
            keys = keys or []
            pattern = Group(
                pattern, tuple(keys), tuple((name, each) for each, name in lifted.items())
            )
            scope = {name for name, _ in keys}
            self._check_grouped(items, scope | set(lifted.values()), start)
        for condition in having:
            pattern = Filter(pattern, condition)
        if data is not None:
            pattern = join(pattern, data)
            scope |= set(data.variables)
        for name, expression in items:
            if expression is not None:
                if name in scope:
                    self.fail(f"{name} has a value already", start)
                pattern = Extend(pattern, name, expression)
                scope.add(name)
        if star:
            variables = self._in_order_of_text(in_scope(pattern))
        else:
            variables = tuple(dict.fromkeys(name for name, _ in items))
        if order:
            pattern = OrderBy(pattern, tuple(order))
        pattern = Project(pattern, variables)
        if distinct:
            pattern = Distinct(pattern)
        elif reduced:
            pattern = Reduced(pattern)
        if offset or limit is not None:
            pattern = Slice(pattern, offset, limit)
        return pattern, variables

    def _in_order_of_text(self, names: Iterable[Variable]) -> tuple[Variable, ...]:
        """The visible variables, in the order in which a reader meets them."""
        visible = {name for name in names if not name.startswith("?.")}
        met = (Variable("?" + each.text[1:]) for each in self._tokens if each.kind == "variable")
        return tuple(name for name in dict.fromkeys(met) if name in visible)

    def _check_grouped(
        self, items: list[tuple[Variable, Expression | None]], known: set[Variable], start: int
    ) -> None:
        for name, expression in items:
            used = {name} if expression is None else variables_in(expression)
            for variable in sorted(used - known):
                self.fail(f"{variable} is neither grouped by nor aggregated", start)
            known.add(name)

    def _lift(self, expression: Expression, lifted: dict[Aggregate, Variable]) -> Expression:
        """Replace aggregates by variables that the grouping will bind."""
        match expression:
            case Aggregate():
                if expression not in lifted:
                    lifted[expression] = self.fresh("a")
                return VariableRef(lifted[expression])
            case Call(name, arguments):
                return Call(name, tuple([self._lift(each, lifted) for each in arguments]))
            case _:
                return expression
