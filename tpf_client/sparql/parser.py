"""Parse SPARQL text to algebra; errors point at line and column.

A triple term with variables becomes a hidden variable, tested to have these parts; ``<< >>``, ``~``
and ``{| |}`` become triples about a reifier. Sources: SPARQL 1.1, sections 15, 18.2 and 19.8;
SPARQL 1.2 (draft), sections 4.1.5 and 19.8.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, TypeAlias

from annotations.errors import TermError
from annotations.namespaces import RDF_REIFIES
from annotations.terms import (
    DEFAULT_GRAPH,
    QuadPattern,
    Term,
    TermOrVariable,
    Triple,
    TriplePattern,
    Variable,
    is_blank_node,
    is_iri,
    is_variable,
    triple_term,
)
from tpf_client.errors import QueryError, UnsupportedQueryError
from tpf_client.sparql.algebra import (
    BGP,
    EMPTY_GROUP,
    NOTHING,
    Aggregate,
    Alternative,
    Call,
    Constant,
    DatasetClause,
    Distinct,
    Exists,
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
    OrderCondition,
    PathExpression,
    Pattern,
    Project,
    Query,
    Reduced,
    Repeat,
    Sequence,
    Service,
    Slice,
    Union,
    Values,
    VariableRef,
)
from tpf_client.sparql.cursor import Cursor
from tpf_client.sparql.depth import balanced, check_chain, check_depth
from tpf_client.sparql.expressions.functions import CASTS
from tpf_client.sparql.paths import path_pattern
from tpf_client.sparql.rewrite.graph import (
    graph_names,
    grounded,
    same_if_joined_before,
    same_where_bound,
)
from tpf_client.sparql.rewrite.visitor import (
    conjunction,
    everything,
    join,
    renamed,
    replaced,
    substituted,
)
from tpf_client.sparql.scopes import TRIPLE_TERM, in_scope, mentioned, variables_in
from tpf_client.sparql.tokens import Token

# Name: fewest and most arguments (None: any number).
BUILTINS: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(("RAND", "NOW", "UUID", "STRUUID"), (0, 0)),
    **dict.fromkeys(
        (
            "STR", "LANG", "DATATYPE", "IRI", "URI", "ABS", "CEIL", "FLOOR", "ROUND", "STRLEN",
            "UCASE", "LCASE", "ENCODE_FOR_URI", "YEAR", "MONTH", "DAY", "HOURS", "MINUTES",
            "SECONDS", "TIMEZONE", "TZ", "MD5", "SHA1", "SHA256", "SHA384", "SHA512", "ISIRI",
            "ISURI", "ISBLANK", "ISLITERAL", "ISNUMERIC", "ISTRIPLE", "SUBJECT", "PREDICATE",
            "OBJECT", "LANGDIR", "HASLANG", "HASLANGDIR",
        ),
        (1, 1),
    ),
    **dict.fromkeys(
        (
            "LANGMATCHES", "SAMETERM", "CONTAINS", "STRSTARTS", "STRENDS", "STRBEFORE", "STRAFTER",
            "STRLANG", "STRDT",
        ),
        (2, 2),
    ),
    "TRIPLE": (3, 3),
    "STRLANGDIR": (3, 3),
    "BNODE": (0, 1),
    "IF": (3, 3),
    "SUBSTR": (2, 3),
    "REGEX": (2, 3),
    "REPLACE": (3, 4),
    "CONCAT": (0, None),
    "COALESCE": (0, None),
}  # fmt: skip

AGGREGATES = frozenset(
    ("COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT", "MEDIAN")
)  # MEDIAN is ours; no keyword of SPARQL has this name.

MAX_TRIPLE_PATTERNS = 10_000
"""Triple patterns of a query, each step of a path included."""

_UNARY = {"!": "!", "+": "pos", "-": "neg"}
_COMPARISONS = ("=", "!=", "<", ">", "<=", ">=")
Emit = Callable[[TermOrVariable, PathExpression | TermOrVariable, TermOrVariable], None]
"""Takes subject, verb and object of each triple that is read."""
_Parts = tuple[TermOrVariable, TermOrVariable, TermOrVariable]
_PARTS = ("SUBJECT", "PREDICATE", "OBJECT")
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_FIRST, _REST, _NIL = (Term(f"<{_RDF}{name}>") for name in ("first", "rest", "nil"))
_Items = dict[Variable, Expression | None]
BoundTerms: TypeAlias = tuple[tuple[Variable, Term], ...]
"""Terms for variables, hashable."""


@dataclass(frozen=True)
class Dialect:
    """The clauses that a language adds to SPARQL, as functions that take the parser.

    Args:
        elements: group elements by their keyword; they return the group with the element in it.
        functions: builtins by their name, which is under the cursor.
        tokens: changes the tokens before parsing.
        after_form: reads the rest of the query form; likewise the others.
        from_clause: reads the rest of ``FROM``; true if no graph IRI is left.
        after_where: reads the rest after WHERE; is it the outermost?
        select_names: GROUP BY and HAVING may use names of the SELECT clause.
        stops_in_prologue: full stops may follow declarations.
        continuous: services are named by IRIs, and unknown functions are refused.
    """

    elements: Mapping[str, Callable[["Parser", Pattern], Pattern]] = field(default_factory=dict)
    functions: Mapping[str, Callable[["Parser"], Expression]] = field(default_factory=dict)
    tokens: Callable[[list[Token]], list[Token]] | None = None
    after_form: Callable[["Parser"], None] | None = None
    from_clause: Callable[["Parser", int, bool], bool] | None = None
    after_where: Callable[["Parser", Pattern, bool], Pattern] | None = None
    after_group: Callable[["Parser", Pattern, int], Pattern] | None = None
    template: Callable[["Parser", Emit], None] | None = None
    select_names: bool = False
    stops_in_prologue: bool = False
    continuous: bool = False


SPARQL = Dialect()


@lru_cache(maxsize=512)
def parse_query(text: str, base: str | None = None, bindings: BoundTerms = ()) -> Query:
    """Parse a SPARQL query.

    Args:
        text: the query.
        base: resolves relative IRIs where the text has no BASE.
        bindings: terms for variables, as if they stood in the text; solutions have them, too.

    Raises:
        QuerySyntaxError: the text is not a query.
        UnsupportedQueryError: the algebra cannot express it.
        QueryError: the text lacks a variable that is bound.
    """
    parser = Parser(text, base)
    parser.bind(bindings)
    return parser.query()


def declared_prefixes(text: str) -> dict[str, str]:
    """Return the namespaces of the prefixes that the text of a query declares."""
    parser = Parser(text)
    parser.prologue()
    return parser.prefixes


def with_dataset(text: str, dataset: DatasetClause) -> str:
    """Replace FROM and FROM NAMED in the text of a query."""
    parser = Parser(text)
    parser.query()
    clauses = [f"FROM {name}" for name in dataset.default]
    clauses += [f"FROM NAMED {name}" for name in dataset.named]
    before, after = parser.text[: parser.dataset_at[0]], parser.text[parser.dataset_at[1] :]
    return f"{before} {' '.join(clauses)} {after}"


class Parser(Cursor):
    """Parse one query."""

    def __init__(self, text: str, base: str | None = None, dialect: Dialect = SPARQL) -> None:
        super().__init__(text, base)
        if dialect.tokens is not None:
            self._tokens = dialect.tokens(self._tokens)
        self._dialect = dialect
        self.dataset_at = (0, 0)
        self.graph: TermOrVariable = DEFAULT_GRAPH
        self.repeated_paths: list[tuple[PathExpression, int]] = []
        self._triple_patterns = 0
        self._aggregates_allowed = False
        self._in_template = False
        # Blank node labels are scoped to one basic graph pattern (section 4.1.4).
        self._block = 0
        self._blocks_opened = 0
        self._labels: dict[str, int] = {}
        self._made_of: dict[Variable, _Parts] = {}
        self._scope: tuple[Pattern, set[Variable]] = (EMPTY_GROUP, set())
        self._bindings: dict[Variable, Term] = {}

    def bind(self, bindings: BoundTerms) -> None:
        """Use terms for variables; see `parse_query`."""
        self._bindings = dict(bindings)
        names = {"?" + each.text[1:] for each in self._tokens if each.kind == "variable"}
        for name in self._bindings:
            if name not in names:
                raise QueryError(f"the query has no variable {name}")

    def mark(self) -> tuple[int, int, int]:
        """The position in the text, for `rewind`."""
        return self._index, self._block, self._blocks_opened

    def rewind(self, mark: tuple[int, int, int]) -> None:
        """Go back to parse the same text again."""
        self._index, self._block, self._blocks_opened = mark

    def query(self) -> Query:
        self.prologue()
        form = self._FORMS.get(self.token.text.upper()) if self.token.kind == "word" else None
        if form is None:
            self.expected("SELECT, ASK, CONSTRUCT or DESCRIBE")
        self.advance()
        if self._dialect.after_form is not None:
            self._dialect.after_form(self)
        query = form(self)
        if self.token.kind != "end":
            self.expected("the end of the query")
        check_depth(query)
        return query

    def prologue(self) -> None:
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
                # It announces features; all are parsed in any case.
                text = self.token.text
                if self.token.kind != "string" or text.startswith(('"""', "'''")):
                    self.expected("a version in single or double quotation marks")
                self.advance()
            elif not (self._dialect.stops_in_prologue and self.take(".")):
                return

    # -------------------------------------------------------------------------------- forms

    def _select(self) -> Query:
        pattern, variables, dataset = self._select_query(outermost=True)
        return Query("SELECT", pattern, variables, dataset=dataset)

    def _sub_select(self) -> Pattern:
        pattern = self._select_query(outermost=False)[0]
        if not is_variable(self.graph):
            return pattern
        graph = Variable(self.graph)
        return grounded(self._per_graph(pattern, graph), graph, self.fresh)

    def _per_graph(self, pattern: Pattern, graph: Variable) -> Pattern:
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
        dataset = self.dataset()
        pattern, _ = self._modified(self._where(), None, self._bindings, {})
        return Query("ASK", pattern, dataset=dataset)

    def _construct(self) -> Query:
        if self.at("{"):
            template = self._template()
            dataset = self.dataset()
            pattern = self._where()
        else:
            dataset = self.dataset()
            self.expect_word("WHERE")
            start = self.mark()
            template = self._template()
            self.rewind(start)
            pattern = self._bound(self.group_graph_pattern())
        pattern, _ = self._modified(pattern, None, self._bindings, {})
        pattern, template = self._put_together(pattern, template)
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
        (self._dialect.template or Parser.triples)(self, emit)
        self._in_template = False
        self.expect("}")
        return tuple(triples)

    def _describe(self) -> Query:
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
        dataset = self.dataset()
        given = self.at_word("WHERE") or self.at("{")
        pattern = self._where() if given else self._bound(EMPTY_GROUP)
        items: _Items = dict.fromkeys(variables)
        pattern, shown = self._modified(pattern, items, self._bindings, {}, star=star)
        return Query(
            "DESCRIBE", pattern, shown if star else tuple(variables), (), tuple(described), dataset
        )

    _FORMS: ClassVar[Mapping[str, Callable[["Parser"], Query]]] = {
        "SELECT": _select,
        "ASK": _ask,
        "CONSTRUCT": _construct,
        "DESCRIBE": _describe,
    }

    def dataset(self) -> DatasetClause:
        from_clause = self._dialect.from_clause
        default: list[Term] = []
        named: list[Term] = []
        begin = end = self.token.position
        while self.at_word("FROM"):
            start = self.advance().position
            is_named = self.take_word("NAMED")
            if from_clause is None or not from_clause(self, start, is_named):
                name_end = self.token.end
                (named if is_named else default).append(self.iri())
                end = name_end
        self.dataset_at = begin, end
        return DatasetClause(tuple(default), tuple(named))

    def _bound(self, pattern: Pattern) -> Pattern:
        """The pattern of a WHERE clause with the terms that variables are bound to."""
        if not self._bindings:
            return pattern
        return join(_one_row(self._bindings), substituted(pattern, self._bindings))

    def _where(self, *, outermost: bool = True) -> Pattern:
        self.take_word("WHERE")
        pattern = self.group_graph_pattern()
        if outermost:
            pattern = self._bound(pattern)
        if self._dialect.after_where is not None:
            pattern = self._dialect.after_where(self, pattern, outermost)
        return pattern

    # ----------------------------------------------------------------------------- SELECT

    def _select_query(
        self, *, outermost: bool
    ) -> tuple[Pattern, tuple[Variable, ...], DatasetClause]:
        distinct = self.take_word("DISTINCT")
        reduced = not distinct and self.take_word("REDUCED")
        items: _Items = {}
        starts: dict[Variable, int] = {}
        star = self.take("*")
        while not star and (self.token.kind == "variable" or self.at("(")):
            start = self.token.position
            if self.token.kind == "variable":
                name = self.variable()
                items.setdefault(name, None)
                starts.setdefault(name, start)
                continue
            self.expect("(")
            expression = self._expression_with_aggregates()
            self.expect_word("AS")
            position = self.token.position
            name = self.variable()
            if name in items:
                self.fail(f"{name} is selected twice", position)
            items[name] = expression
            starts[name] = start
            self.expect(")")
        if not star and not items:
            self.expected("'*' or what to select")
        dataset = self.dataset() if outermost else DatasetClause()
        pattern = self._where(outermost=outermost)
        if is_variable(self.graph):
            pattern = grounded(pattern, self.graph, self.fresh)
        bindings = self._bindings if outermost else {}
        pattern, variables = self._modified(
            pattern, items, bindings, starts, star=star, distinct=distinct, reduced=reduced
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
        items: _Items | None,
        bindings: Mapping[Variable, Term],
        starts: Mapping[Variable, int],
        *,
        star: bool = False,
        distinct: bool = False,
        reduced: bool = False,
    ) -> tuple[Pattern, tuple[Variable, ...]]:
        behind = self.token.position
        # ASK and CONSTRUCT select nothing by name, but may be grouped.
        every = star or items is None
        items = items or {}
        keys = self._group_by()
        having = self._having()
        if self._dialect.select_names:
            having = _with_select_names(keys or [], having, items)
        order = self._order_by()
        offset, limit = self._limits()
        data = self._inline_data() if self.take_word("VALUES") else None

        bindings = {name: term for name, term in bindings.items() if name not in dict(keys or ())}
        lifted: dict[Aggregate, Variable] = {}

        def ready(expression: Expression) -> Expression:
            return self._lift(substituted(expression, bindings), lifted)

        items = {name: each and ready(each) for name, each in items.items()}
        having = [ready(each) for each in having]
        order = [OrderCondition(ready(each.expression), each.descending) for each in order]
        scope = set(in_scope(pattern))
        if keys is not None or lifted or having:
            if star:
                self.fail("'*' cannot be grouped", behind)
            keys = keys or []
            pattern = Group(
                pattern, tuple(keys), tuple((name, each) for each, name in lifted.items())
            )
            before, scope = scope, {name for name, _ in keys} | set(bindings)
            for name, variable in _ungrouped(items, scope | set(lifted.values()), before):
                message = f"{variable} is neither grouped by nor aggregated"
                self.fail(message, starts.get(name, behind))
            for condition in having:
                pattern = Filter(pattern, condition)
            if bindings:  # Groups do not keep those of WHERE.
                pattern = join(pattern, _one_row(bindings))
        if data is not None:
            pattern = join(pattern, data)
            scope |= set(data.variables)
        for name, expression in items.items():
            if expression is not None:
                if name in scope:
                    self.fail(f"{name} has a value already", starts.get(name, behind))
                pattern = Extend(pattern, name, expression)
                scope.add(name)
        variables = self._in_order_of_text(in_scope(pattern)) if every else tuple(items)
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
        visible = {name for name in names if not name.startswith("?.")}
        met = (Variable("?" + each.text[1:]) for each in self._tokens if each.kind == "variable")
        return tuple(name for name in dict.fromkeys(met) if name in visible)

    def _lift(self, expression: Expression, lifted: dict[Aggregate, Variable]) -> Expression:
        match expression:
            case Aggregate():
                if expression not in lifted:
                    lifted[expression] = self.fresh("a")
                return VariableRef(lifted[expression])
            case Call(name, arguments):
                return Call(name, tuple([self._lift(each, lifted) for each in arguments]))
            case _:
                return expression

    # ---------------------------------------------------------------------------- modifiers

    def _group_by(self) -> list[tuple[Variable, Expression]] | None:
        if not self.take_word("GROUP"):
            return None
        self.expect_word("BY")
        keys: dict[Variable, Expression] = {}
        while True:
            position = self.token.position
            named: Variable | None = None
            if self.token.kind == "variable":
                expression: Expression = VariableRef(self.variable())
            elif self.take("("):
                expression = self.expression()
                named = self.variable() if self.take_word("AS") else None
                self.expect(")")
            elif self.at_iri() or self._at_builtin():
                expression = self.constraint()
            elif keys:
                return [*keys.items()]
            else:
                self.expected("what to group by")
            name = named or self._key_name(expression)
            if keys.setdefault(name, expression) != expression:
                self.fail(f"{name} has a value already", position)

    def _key_name(self, expression: Expression) -> Variable:
        return expression.variable if isinstance(expression, VariableRef) else self.fresh("k")

    def _at_builtin(self) -> bool:
        modifiers = ("HAVING", "ORDER", "LIMIT", "OFFSET", "VALUES", "ASC", "DESC")
        return self.token.kind == "word" and not self.at_word(*modifiers)

    def _having(self) -> list[Expression]:
        conditions: list[Expression] = []
        if self.take_word("HAVING"):
            self._aggregates_allowed = True
            conditions.append(self.constraint())
            while self.at("(") or self.at_iri() or self._at_builtin():
                conditions.append(self.constraint())
            self._aggregates_allowed = False
        return conditions

    def _order_by(self) -> list[OrderCondition]:
        conditions: list[OrderCondition] = []
        if not self.take_word("ORDER"):
            return conditions
        self.expect_word("BY")
        self._aggregates_allowed = True
        while True:
            if self.at_word("ASC", "DESC"):
                descending = self.advance().text.upper() == "DESC"
                conditions.append(OrderCondition(self._bracketed(), descending))
            elif self.token.kind == "variable":
                conditions.append(OrderCondition(VariableRef(self.variable())))
            elif self.at("(") or self.at_iri() or self._at_builtin():
                conditions.append(OrderCondition(self.constraint()))
            elif conditions:
                self._aggregates_allowed = False
                return conditions
            else:
                self.expected("what to order by")

    def _limits(self) -> tuple[int, int | None]:
        numbers: dict[str, int] = {}
        while self.at_word("LIMIT", "OFFSET"):
            word = self.token.text.upper()
            if word in numbers:
                self.fail(f"a second {word}")
            self.advance()
            numbers[word] = self.whole_number()
        return numbers.get("OFFSET", 0), numbers.get("LIMIT")

    # ------------------------------------------------------------------------------- groups

    def group_graph_pattern(self) -> Pattern:
        """Parse a group in braces, and put its filters around it."""
        pattern, filters = self._group()
        for condition in filters:
            pattern = Filter(self._on_ground(pattern, variables_in(condition)), condition)
        return pattern

    def _group(self) -> tuple[Pattern, list[Expression]]:
        with self.nested():
            return self._group_elements()

    def _group_elements(self) -> tuple[Pattern, list[Expression]]:
        self.expect("{")
        if self.take_word("SELECT"):
            pattern = self._sub_select()
            self.expect("}")
            return pattern, []
        pattern = EMPTY_GROUP
        filters: list[Expression] = []
        self._open_block()
        while not self.at("}"):
            if self.take_word("FILTER"):
                block = self._block
                filters.append(self.constraint())
                self._block = block
            elif self._at_triples():
                pattern = join(pattern, self._triples_block())
                if self._at_triples():
                    self.expected("'.' or '}'")
                continue
            else:
                pattern = self._element(pattern)
                self._open_block()
            self.take(".")
        self.expect("}")
        self._open_block()
        return pattern, filters

    def _element(self, before: Pattern) -> Pattern:
        if self.token.kind == "word":
            word = self.token.text.upper()
            element = self._dialect.elements.get(word) or self._ELEMENTS.get(word)
            if element is not None:
                self.advance()
                return element(self, before)
        if not self.at("{"):
            self.expected("a triple pattern, a group or '}'")
        start = self.token.position
        branches = [self.group_graph_pattern()]
        while self.take_word("UNION"):
            branches.append(self.group_graph_pattern())
        pattern = balanced(Union, branches)
        if self._dialect.after_group is not None:
            pattern = self._dialect.after_group(self, pattern, start)
        return join(before, pattern)

    def _optional(self, before: Pattern) -> Pattern:
        optional, filters = self._group()
        condition = conjunction(filters)
        used = mentioned(optional) | (variables_in(condition) if condition else frozenset())
        return LeftJoin(self._on_ground(before, used), optional, condition)

    def _minus(self, before: Pattern) -> Pattern:
        removed = self.group_graph_pattern()
        apart = (Variable(self.graph),) if is_variable(self.graph) else ()
        return Minus(self._on_ground(before, mentioned(removed)), removed, apart)

    def _service(self, before: Pattern) -> Pattern:
        silent = self.take_word("SILENT")
        token = self.token
        endpoint = self.variable_or_iri()
        if self._dialect.continuous and is_variable(endpoint):
            self.refuse(
                f"SERVICE {endpoint}: what is asked again and again is named by an IRI",
                token.position,
            )
        with self.inside(DEFAULT_GRAPH):
            return join(before, Service(endpoint, self.group_graph_pattern(), silent))

    def _bind(self, before: Pattern) -> Pattern:
        self.expect("(")
        expression = self.expression()
        self.expect_word("AS")
        position = self.token.position
        variable = self.variable()
        if variable in self._scope_of(before):
            self.fail(f"{variable} has a value already", position)
        self.expect(")")
        return Extend(self._on_ground(before, variables_in(expression)), variable, expression)

    def _values(self, before: Pattern) -> Pattern:
        return join(before, self._inline_data())

    def graph_clause(self, before: Pattern) -> Pattern:
        return join(before, self._graph_pattern())

    _ELEMENTS: ClassVar[Mapping[str, Callable[["Parser", Pattern], Pattern]]] = {
        "OPTIONAL": _optional,
        "MINUS": _minus,
        "GRAPH": graph_clause,
        "SERVICE": _service,
        "BIND": _bind,
        "VALUES": _values,
    }

    def _scope_of(self, pattern: Pattern) -> set[Variable]:
        previous, scope = self._scope
        if previous is not pattern:
            if isinstance(pattern, Extend) and pattern.input is previous:
                scope.add(pattern.variable)
            else:
                scope = set(in_scope(pattern))
            self._scope = pattern, scope
        return scope

    @contextmanager
    def inside(self, graph: TermOrVariable) -> Iterator[None]:
        outer, self.graph = self.graph, graph
        yield
        self.graph = outer

    def _graph_pattern(self) -> Pattern:
        graph = self.variable_or_iri()
        if not is_variable(graph):
            with self.inside(graph):
                return grounded(self.group_graph_pattern(), graph, self.fresh)
        # Section 18.6 evaluates the pattern in each graph, and joins ?g with the result: inside, it
        # is a variable like any other.
        hidden, name = self.fresh("g"), Variable(graph)
        with self.inside(hidden):
            pattern = grounded(self.group_graph_pattern(), hidden, self.fresh)
        if same_if_joined_before(pattern, name):
            return renamed(pattern, hidden, name)
        inner = self.fresh("g")
        pattern = renamed(renamed(pattern, name, inner), hidden, name)
        return same_where_bound(pattern, inner, name)

    def _on_ground(self, pattern: Pattern, used: frozenset[Variable]) -> Pattern:
        return grounded(pattern, self.graph, self.fresh) if self.graph in used else pattern

    def _inline_data(self) -> Values:
        rows: list[tuple[Term | None, ...]] = []
        variables: dict[Variable, None] = {}
        if self.token.kind == "variable":
            variables[self.variable()] = None
            self.expect("{")
            while not self.take("}"):
                rows.append((self._data_value(),))
            return Values(tuple(variables), tuple(rows))
        self.expect("(")
        while not self.take(")"):
            position = self.token.position
            name = self.variable()
            if name in variables:
                self.fail(f"{name} is listed twice", position)
            variables[name] = None
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
            term = self._triple_term()
            if is_variable(term):
                self.fail("a triple term of data is of IRIs and literals", opening)
            return Term(term)
        return self.literal() if self.at_literal() else self.iri()

    def variable_or_iri(self) -> TermOrVariable:
        """Step over a variable or an IRI, which must be there."""
        return self.variable() if self.token.kind == "variable" else self.iri()

    # ------------------------------------------------------------------------------ triples

    def _open_block(self) -> None:
        self._blocks_opened += 1
        self._block = self._blocks_opened

    def _at_triples(self) -> bool:
        return (
            self.token.kind in ("variable", "blank")
            or self.at_iri()
            or self.at_literal()
            or self.at("(", "[", "<<", "<<(")
        )

    def _triples_block(self) -> Pattern:
        parts: list[Pattern] = []

        def emit(
            subject: TermOrVariable, verb: PathExpression | TermOrVariable, object_: TermOrVariable
        ) -> None:
            each: Pattern
            if isinstance(verb, str):
                each = BGP((QuadPattern(subject, verb, object_, self.graph),))
            else:
                each = path_pattern(subject, verb, object_, self.graph, self.fresh)
            steps = (isinstance(part, (Link, NegatedSet)) for part in everything(verb))
            self._triple_patterns += 1 if isinstance(verb, str) else sum(steps)
            if self._triple_patterns > MAX_TRIPLE_PATTERNS:
                raise UnsupportedQueryError(
                    f"this query has more than {MAX_TRIPLE_PATTERNS:,} triple patterns"
                )
            parts.append(self._taken_apart(each, subject, object_))

        self.triples(emit)
        pattern: Pattern = EMPTY_GROUP
        for each in parts:
            pattern = join(pattern, each)
        return pattern

    def triples(self, emit: Emit) -> None:
        """Parse triples, one subject's after the other."""
        while self._at_triples():
            if self.at("(", "[", "<<"):
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
            self._object(subject, verb, emit)
            while self.take(","):
                self._object(subject, verb, emit)
            if not self.at(";"):
                return
            while self.take(";"):
                pass
            if not self._at_verb():
                return
            verb = self._verb()

    def _object(
        self, subject: TermOrVariable, verb: PathExpression | TermOrVariable, emit: Emit
    ) -> None:
        node = self._node(emit)
        emit(subject, verb, node)
        self._annotations(subject, verb, node, emit)

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
        if self.at("<<"):
            return self._reified_triple(emit)
        if self.at("[", "("):
            with self.nested():
                if self.at("["):
                    return self._blank_node_property_list(emit)
                return self._collection(emit)
        return self._simple_node()

    def _simple_node(self) -> TermOrVariable:
        if self.token.kind == "variable":
            return self.variable()
        if self.at_literal():
            return self.literal()
        if self.token.kind == "blank":
            return self._labelled(self.advance().text[2:])
        if self.at("<<("):
            return self._triple_term()
        if self.take("["):
            self.expect("]")
            return self._anonymous()
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

    # ------------------------------------------------------------------------- triple terms

    def _triple_term(self) -> TermOrVariable:
        self.expect("<<(")
        with self.nested():
            subject = self._simple_node()
            verb = self.variable() if self.token.kind == "variable" else self.verb_iri()
            object_ = self._simple_node()
        self.expect(")>>")
        return self._triple_of((subject, verb, object_))

    def _triple_of(self, parts: _Parts) -> TermOrVariable:
        subject, verb, object_ = parts
        # A blank node of a template is another one in every solution.
        open_ = any(is_variable(part) or is_blank_node(part) for part in (verb, object_))
        if is_iri(subject) and not open_:
            try:
                return triple_term(Triple(Term(subject), Term(verb), Term(object_)))
            except TermError as error:
                self.fail(str(error))
        # Also where nothing is open, but nothing can be it: with a literal as its subject.
        name = self.fresh(TRIPLE_TERM)
        self._made_of[name] = parts
        return name

    def _reified_triple(self, emit: Emit) -> TermOrVariable:
        self.expect("<<")
        with self.nested():
            subject = self._part(emit)
            verb = self.variable() if self.token.kind == "variable" else self.verb_iri()
            object_ = self._part(emit)
            reifier = self._reifier() if self.take("~") else self._anonymous()
        self.expect(">>")
        emit(reifier, RDF_REIFIES, self._triple_of((subject, verb, object_)))
        return reifier

    def _part(self, emit: Emit) -> TermOrVariable:
        return self._reified_triple(emit) if self.at("<<") else self._simple_node()

    def _reifier(self) -> TermOrVariable:
        if self.token.kind in ("variable", "blank") or self.at_iri() or self.at("["):
            return self._simple_node()
        return self._anonymous()

    def _annotations(
        self,
        subject: TermOrVariable,
        verb: PathExpression | TermOrVariable,
        object_: TermOrVariable,
        emit: Emit,
    ) -> None:
        reifier: TermOrVariable | None = None
        while self.at("~", "{|"):
            sign = self.advance()
            if not isinstance(verb, str):
                self.fail("a path cannot be annotated", sign.position)
            if sign.text == "~" or reifier is None:
                reifier = self._reifier() if sign.text == "~" else self._anonymous()
                emit(reifier, RDF_REIFIES, self._triple_of((subject, verb, object_)))
            if sign.text == "{|":
                with self.nested():
                    self._property_list(reifier, emit)
                self.expect("|}")
                reifier = None

    # --------------------------------------------------------------------- into the algebra

    def _taken_apart(self, pattern: Pattern, *nodes: object) -> Pattern:
        for node in nodes:
            parts = self._made_of.get(node)  # type: ignore[call-overload]
            if parts is None:
                continue
            whole = VariableRef(Variable(str(node)))
            pattern = Filter(pattern, Call("ISTRIPLE", (whole,)))
            for name, part in zip(_PARTS, parts, strict=True):
                value = Call(name, (whole,))
                if is_variable(part) and part not in in_scope(pattern):
                    pattern = Extend(pattern, Variable(part), value)
                else:
                    same = Call("SAMETERM", (value, _expression(part)))
                    pattern = Filter(pattern, same)
                pattern = self._taken_apart(pattern, part)
        return pattern

    def _put_together(
        self, pattern: Pattern, template: tuple[TriplePattern, ...]
    ) -> tuple[Pattern, tuple[TriplePattern, ...]]:
        """Bind a template's triple terms; their blank nodes are fresh in each solution."""
        new: dict[TermOrVariable, Variable] = {}
        scope = set(in_scope(pattern))

        def expression(part: TermOrVariable) -> Expression:
            nonlocal pattern
            if part in self._made_of:
                add(Variable(part))
            elif is_blank_node(part) and part not in new:
                new[part] = self.fresh()
                pattern = Extend(pattern, new[part], Call("BNODE", ()))
            return _expression(new.get(part, part))

        def add(node: Variable) -> None:
            nonlocal pattern
            made = Call("TRIPLE", tuple([expression(part) for part in self._made_of[node]]))
            if node not in scope:
                scope.add(node)
                pattern = Extend(pattern, node, made)

        for triple in template:
            for node in triple:
                if node in self._made_of:
                    add(Variable(node))
        return pattern, tuple(
            TriplePattern(*[new.get(node, node) for node in triple]) for triple in template
        )

    # -------------------------------------------------------------------------------- paths

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
        start = self.token.position
        path: PathExpression
        if self.take("!"):
            path = self._negated_set()
        elif self.take("("):
            with self.nested():
                path = self._path_alternative()
            self.expect(")")
        else:
            path = Link(self.verb_iri())
        # A sign and a number are one token: the object.
        if not self.at("*", "+", "?") or self.at_signed_number():
            return path
        sign = self.advance().text
        path = Repeat(path, at_least_once=sign == "+", many=sign != "?")
        self.repeated_paths.append((path, start))
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

    # -------------------------------------------------------------------------- expressions

    def expression(self) -> Expression:
        with self.nested():
            return self._chained("||", lambda: self._chained("&&", self._relation))

    def _chained(self, sign: str, operand: Callable[[], Expression]) -> Expression:
        operands = [operand()]
        while self.take(sign):
            operands.append(operand())
        return balanced(lambda left, right: Call(sign, (left, right)), operands)

    def _relation(self) -> Expression:
        left = self._sum()
        if self.at(*_COMPARISONS):
            return Call(self.advance().text, (left, self._sum()))
        if self.take_word("IN"):
            return Call("IN", (left, *self._arguments()))
        if self.at_word("NOT") and self.ahead().text.upper() == "IN":
            self.advance()
            self.advance()
            return Call("NOT IN", (left, *self._arguments()))
        return left

    def _sum(self) -> Expression:
        return self._in_turn(("+", "-"), self._product)

    def _product(self) -> Expression:
        return self._in_turn(("*", "/"), self._unary)

    def _in_turn(self, signs: tuple[str, str], operand: Callable[[], Expression]) -> Expression:
        left = operand()
        steps = 0
        while self.at(*signs):
            left = Call(self.advance().text, (left, operand()))
            steps += 1
        if steps:
            check_chain(steps)
        return left

    def _unary(self) -> Expression:
        if self.at_signed_number():
            return Constant(self.literal())
        for sign, name in _UNARY.items():
            if self.take(sign):
                with self.nested():
                    return Call(name, (self._unary(),))
        return self._primary()

    def _primary(self) -> Expression:
        if self.at("("):
            return self._bracketed()
        if self.at("<<("):
            return self._triple_expression()
        if self._at_plain():
            return self._plain()
        if self.at_iri():
            name = self.iri()
            return self._call(name) if self.at("(") else Constant(name)
        return self._builtin()

    def _at_plain(self) -> bool:
        return self.token.kind == "variable" or self.at_literal()

    def _plain(self) -> Expression:
        if self.token.kind == "variable":
            return VariableRef(self.variable())
        return Constant(self.literal() if self.at_literal() else self.iri())

    def _triple_expression(self) -> Expression:
        self.expect("<<(")
        with self.nested():
            if self.at("<<(") or self.at_literal():
                self.fail("the subject of a triple term is an IRI or a variable")
            subject = self._plain()
            variable = self.token.kind == "variable"
            verb = VariableRef(self.variable()) if variable else Constant(self.verb_iri())
            object_ = self._triple_expression() if self.at("<<(") else self._plain()
        self.expect(")>>")
        return Call("TRIPLE", (subject, verb, object_))

    def _bracketed(self) -> Expression:
        self.expect("(")
        inner = self.expression()
        self.expect(")")
        return inner

    def constraint(self) -> Expression:
        """Parse the argument of FILTER: an expression in brackets or a call."""
        if self.at("("):
            return self._bracketed()
        if self.at_iri():
            return self._call(self.iri())
        return self._builtin()

    def _call(self, name: Term) -> Expression:
        if self.ahead().kind == "word" and self.ahead().text.upper() == "DISTINCT":
            self.fail("DISTINCT belongs to aggregates only", self.ahead().position)
        if self._dialect.continuous and name not in CASTS:
            self.refuse(f"unknown function {name}", self.ahead(-1).position)
        return Call(name, self._arguments())

    def _arguments(self) -> tuple[Expression, ...]:
        self.expect("(")
        arguments: list[Expression] = []
        while not self.at(")"):
            if arguments:
                self.expect(",")
            arguments.append(self.expression())
        self.expect(")")
        return tuple(arguments)

    def _builtin(self) -> Expression:
        token = self.token
        name = token.text.upper() if token.kind == "word" else ""
        if name in AGGREGATES and self.ahead().text == "(":
            return self._aggregate()
        if name == "BOUND":
            self.advance()
            self.expect("(")
            bound = Call(name, (VariableRef(self.variable()),))
            self.expect(")")
            return bound
        if name == "EXISTS":
            self.advance()
            return Exists(self._exists_pattern())
        if name == "NOT" and self.ahead().text.upper() == "EXISTS":
            self.advance()
            self.advance()
            return Exists(self._exists_pattern(), negated=True)
        if name in self._dialect.functions and self.ahead().text == "(":
            return self._dialect.functions[name](self)
        if name not in BUILTINS:
            if name and self.ahead().text == "(":
                self.fail(f"unknown function {token.text}")
            self.expected("an expression")
        self.advance()
        fewest, most = BUILTINS[name]
        arguments = self._arguments()
        if len(arguments) < fewest or (most is not None and len(arguments) > most):
            arity = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            self.fail(f"{name} takes {arity} argument(s), not {len(arguments)}", token.position)
        name = {"URI": "IRI", "ISURI": "ISIRI"}.get(name, name)
        if name == "IRI" and self.base is not None:
            # The base that is in force here is part of what IRI() means.
            arguments = (*arguments, Constant(Term(f"<{self.base}>")))
        return Call(name, arguments)

    def _exists_pattern(self) -> Pattern:
        allowed, self._aggregates_allowed = self._aggregates_allowed, False
        pattern = self.group_graph_pattern()
        self._aggregates_allowed = allowed
        return pattern

    def _aggregate(self) -> Expression:
        token = self.advance()
        name = token.text.upper()
        if not self._aggregates_allowed:
            self.fail(f"{name} cannot stand here", token.position)
        self.expect("(")
        distinct = self.take_word("DISTINCT")
        argument: Expression | None = None
        if not (name == "COUNT" and self.take("*")):
            self._aggregates_allowed = False
            argument = self.expression()
            self._aggregates_allowed = True
        separator = " "
        if name == "GROUP_CONCAT" and self.take(";"):
            self.expect_word("SEPARATOR")
            self.expect("=")
            separator = self.string()
        self.expect(")")
        return Aggregate(name, argument, distinct, separator)


def _expression(node: TermOrVariable) -> Expression:
    return VariableRef(Variable(node)) if is_variable(node) else Constant(Term(node))


def _aggregated(expression: Expression) -> bool:
    return any(isinstance(each, Aggregate) for each in everything(expression, Exists))


def _one_row(bindings: Mapping[Variable, Term]) -> Values:
    return Values(tuple(bindings), (tuple(bindings.values()),))


def _ungrouped(
    items: _Items, bound: set[Variable], scope: set[Variable]
) -> Iterator[tuple[Variable, Variable]]:
    """Yield what items use that a group does not have; EXISTS may have variables of its own."""
    for name, expression in items.items():
        used = {name}
        if expression is not None:
            used = set(variables_in(expression) & scope)
            direct = everything(expression, Exists)
            used.update(each.variable for each in direct if isinstance(each, VariableRef))
        yield from ((name, variable) for variable in sorted(used - bound))
        bound.add(name)


def _with_select_names(
    keys: list[tuple[Variable, Expression]], having: list[Expression], items: _Items
) -> list[Expression]:
    for at, (name, expression) in enumerate(keys):
        selected = items.get(name)
        if expression == VariableRef(name) and selected is not None and not _aggregated(selected):
            keys[at] = (name, selected)
            items[name] = None
    named: dict[Expression, Expression] = {
        VariableRef(name): expression
        for name, expression in items.items()
        if expression is not None and _aggregated(expression)
    }
    return [replaced(condition, named) for condition in having]
