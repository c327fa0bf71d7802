"""Translate expressions to columns of Spark SQL.

A SPARQL error is null, which has the same three-valued logic. Where Spark SQL differs (division,
decimal arithmetic in terms, most functions on strings and dates), our own closures compute over
Arrow batches.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as sql

from annotations.terms import Term, Variable, is_literal
from tpf_client.dataflow.changes import UNBOUND
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import Call, Constant, Exists, Expression, VariableRef
from tpf_client.sparql.expressions.compiler import Compiler, is_volatile
from tpf_client.sparql.expressions.dates import DateTime, Duration
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.expressions.values import FALSE, TRUE, TRUTH_TYPES, value_of
from tpf_client.sparql.scopes import variables_in
from tpf_server.continuous.spark import terms
from tpf_server.continuous.spark.parameters import parameters_of, with_variables

_REMEMBERED = 100_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS: Mapping[str, Callable[[Column, Column], Column]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}
_ARITHMETIC: Mapping[str, Callable[[Column, Column], Column]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_STRINGS: Mapping[str, Callable[[Column, Column], Column]] = {
    "CONTAINS": lambda a, b: sql.contains(a, b),
    "STRSTARTS": lambda a, b: sql.startswith(a, b),
    "STRENDS": lambda a, b: sql.endswith(a, b),
}


class _NotInSql(Exception):  # noqa: N818
    """Spark SQL cannot express this; stays in this module."""


class ComputedApart:
    """Columns of the parts of a condition, by name, for rows and queries before they are paired."""

    def __init__(self) -> None:
        self.of_rows: dict[str, Column] = {}
        self.of_queries: dict[str, Column] = {}

    def column(self, expression: Expression, value: Column) -> Column:
        """Name a value of an expression, if rows or queries alone have it."""
        if not variables_in(expression):
            columns, name = self.of_queries, f"of_query{len(self.of_queries)}"
        elif not parameters_of(expression):
            columns, name = self.of_rows, f"of_row{len(self.of_rows)}"
        else:
            return value
        columns[name] = value
        return sql.col(name)


class Expressions:
    """Make columns for rows of one schema.

    Args:
        apart: takes what is to be computed before rows and queries are paired.
    """

    def __init__(
        self, columns: Mapping[Variable, Column], apart: ComputedApart | None = None
    ) -> None:
        self._columns = dict(columns)
        self._apart = apart

    def condition(self, expression: Expression) -> Column:
        """The effective boolean value; null for an error."""
        try:
            return self._test(expression)
        except _NotInSql:
            return _effective(self._by_closure(expression))

    def binding(self, expression: Expression) -> Column:
        try:
            return self._term(expression)
        except _NotInSql:
            return self._by_closure(expression)

    # ------------------------------------------------------------------------------- terms

    def _value(self, function: Callable[[Column], Column], expression: Expression) -> Column:
        value = function(self._term(expression))
        return value if self._apart is None else self._apart.column(expression, value)

    def _column(self, variable: Variable) -> Column:
        return self._columns.get(variable, sql.lit(None).cast("string"))

    def _term(self, expression: Expression) -> Column:
        match expression:
            case Constant(term):
                return terms.constant(term)
            case VariableRef(variable):
                return self._column(variable)
            case Call("COALESCE", arguments):
                return sql.coalesce(*map(self._term, arguments))
            case Call("IF", (condition, then, otherwise)):
                holds = self._test(condition)
                return sql.when(holds, self._term(then)).when(~holds, self._term(otherwise))
            case Call(name) if name in _BOOLEANS:
                test = self._test(expression)
                return sql.when(test, sql.lit(str(TRUE))).when(~test, sql.lit(str(FALSE)))
            case _:
                raise _NotInSql

    def _by_closure(self, expression: Expression) -> Column:
        hidden: dict[Variable, terms.Parameter] = {}
        for each in parameters_of(expression):
            hidden[Variable(f"?.p{len(hidden)}")] = each
        waiting = iter(hidden)
        expression = with_variables(expression, lambda _: next(waiting))
        columns = self._columns | {name: terms.constant(term) for name, term in hidden.items()}
        names = tuple(sorted(variables_in(expression)))

        def evaluate(*values: str | None) -> str | None:
            return _closure(expression, names)(values)

        function = sql.udf(evaluate, "string", useArrow=True)
        if is_volatile(expression):
            function = function.asNondeterministic()
        # A function of nothing still needs a row to be called for.
        nothing = sql.lit(None).cast("string")
        return function(*(columns.get(name, nothing) for name in names))

    # ----------------------------------------------------------------------------- numbers

    def _number(self, expression: Expression) -> Column:
        match expression:
            case Constant(term):
                value = value_of(term)
                if isinstance(value, bool) or not hasattr(value, "__float__"):
                    raise _NotInSql
                number = terms.constant_number(term)
                return number if self._apart is None else self._apart.column(expression, number)
            case Call(name, (left, right)) if name in _ARITHMETIC:
                return _ARITHMETIC[name](self._number(left), self._number(right))
            case Call("neg", (inner,)):
                return -self._number(inner)
            case Call("pos", (inner,)):
                return self._number(inner)
            case Call("ABS", (inner,)):
                return sql.abs(self._number(inner))
            case _:
                return self._value(terms.number, expression)

    # ------------------------------------------------------------------------------- tests

    def _test(self, expression: Expression) -> Column:
        match expression:
            case Call("&&", arguments):
                return reduce(and_, map(self._test, arguments))
            case Call("||", arguments):
                return reduce(or_, map(self._test, arguments))
            case Call("!", (inner,)):
                return ~self._test(inner)
            case Call("BOUND", (VariableRef(variable),)):
                return self._column(variable).isNotNull()
            case Call("=", (left, right)):
                return self._equal(left, right)
            case Call("!=", (left, right)):
                return ~self._equal(left, right)
            case Call("IN", (left, *members)):
                if not members:
                    return sql.lit(False)
                return reduce(or_, [self._equal(left, each) for each in members])
            case Call("NOT IN", (left, *members)):
                if not members:
                    return sql.lit(True)
                return ~reduce(or_, [self._equal(left, each) for each in members])
            case Call(name, (left, right)) if name in _COMPARISONS:
                return self._compared(_COMPARISONS[name], left, right)
            case Call("SAMETERM", (left, right)):
                return self._term(left) == self._term(right)
            case Call("ISIRI", (inner,)):
                return terms.is_iri(self._term(inner))
            case Call("ISBLANK", (inner,)):
                return self._term(inner).startswith("_:")
            case Call("ISLITERAL", (inner,)):
                return terms.is_literal(self._term(inner))
            case Call("ISNUMERIC", (inner,)):
                term = self._term(inner)
                return sql.when(term.isNotNull(), terms.number(term).isNotNull())
            case Call(name, (left, right)) if name in _STRINGS:
                return _STRINGS[name](self._string(left), self._string(right))
            case Exists():
                raise _NotInSql
            case Call(name) if name in _ARITHMETIC:
                value = self._number(expression)
                return (value != 0) & ~sql.isnan(value)
            case _:
                return _effective(self._term(expression))

    def _string(self, expression: Expression) -> Column:
        if isinstance(expression, Constant) and is_literal(expression.term):
            return self._value(terms.content, expression)
        if isinstance(expression, Call) and expression.name == "STR":
            (inner,) = expression.arguments
            return self._value(lambda term: terms.unescaped(terms.escaped_lexical(term)), inner)
        raise _NotInSql

    def _values(
        self, function: Callable[[Column], Column], left: Expression, right: Expression
    ) -> tuple[Column, Column]:
        return self._value(function, left), self._value(function, right)

    def _equal(self, left: Expression, right: Expression) -> Column:
        if _is_duration(left) or _is_duration(right):
            raise _NotInSql
        if _arithmetical(left) or _arithmetical(right):
            value = self._number(left)
            return (value == self._number(right)) & ~sql.isnan(value)
        one, other = self._term(left), self._term(right)
        if _is_iri(left) or _is_iri(right):
            return one == other
        first, second = self._values(terms.number, left, right)
        earlier, later = self._values(terms.moment, left, right)
        this, that = self._values(terms.boolean_value, left, right)
        strange, unusual = self._values(_unknown, left, right)
        spoken, said = self._values(terms.spoken, left, right)
        return (
            sql.when(one.isNull() | other.isNull(), None)
            .when(first.isNotNull() & second.isNotNull(), (first == second) & ~sql.isnan(first))
            .when(one == other, True)
            .when(this.isNotNull() & that.isNotNull(), this == that)
            .when(earlier.isNotNull() & later.isNotNull(), earlier == later)
            .when(strange & terms.is_literal(other) & said.isNull(), None)
            .when(unusual & terms.is_literal(one) & spoken.isNull(), None)
            .otherwise(False)
        )

    def _compared(
        self, compare: Callable[[Column, Column], Column], left: Expression, right: Expression
    ) -> Column:
        if _is_duration(left) or _is_duration(right):
            raise _NotInSql
        if any(_arithmetical(each) or _is_number(each) for each in (left, right)):
            one, other = self._number(left), self._number(right)
            return compare(one, other) & ~sql.isnan(one) & ~sql.isnan(other)
        one, other = self._values(terms.number, left, right)
        text, texts = self._values(terms.content, left, right)
        earlier, later = self._values(terms.moment, left, right)
        this, that = self._values(terms.boolean_value, left, right)
        spoken_first, spoken_second = self._values(terms.spoken, left, right)
        return (
            sql.when(
                one.isNotNull() & other.isNotNull(),
                compare(one, other) & ~sql.isnan(one) & ~sql.isnan(other),
            )
            .when(text.isNotNull() & texts.isNotNull(), compare(text, texts))
            .when(earlier["kind"] == later["kind"], compare(earlier["value"], later["value"]))
            .when(this.isNotNull() & that.isNotNull(), compare(this, that))
            .when(
                spoken_first["language"] == spoken_second["language"],
                compare(spoken_first["text"], spoken_second["text"]),
            )
        )


_BOOLEANS = frozenset(
    ("&&", "||", "!", "BOUND", "=", "!=", "IN", "NOT IN", "SAMETERM", "ISIRI", "ISBLANK",
     "ISLITERAL", "ISNUMERIC", *_COMPARISONS, *_STRINGS)
)  # fmt: skip


def _arithmetical(expression: Expression) -> bool:
    return isinstance(expression, Call) and expression.name in (*_ARITHMETIC, "neg", "pos", "ABS")


def _is_number(expression: Expression) -> bool:
    if not isinstance(expression, Constant):
        return False
    value = value_of(expression.term)
    return hasattr(value, "__float__") and not isinstance(value, bool)


def _is_iri(expression: Expression) -> bool:
    return isinstance(expression, Constant) and expression.term.startswith("<")


def _is_duration(expression: Expression) -> bool:
    return isinstance(expression, Constant) and isinstance(value_of(expression.term), Duration)


def _unknown(term: Column) -> Column:
    return (
        (terms.datatype(term) != "")
        & terms.number(term).isNull()
        & terms.moment(term).isNull()
        & terms.boolean_value(term).isNull()
    )


def _effective(term: Column) -> Column:
    value = terms.number(term)
    return (
        sql.when(value.isNotNull(), (value != 0) & ~sql.isnan(value))
        .when(terms.boolean_value(term).isNotNull(), terms.boolean_value(term))
        .when(terms.is_simple(term), term != '""')
        # An ill-typed number or boolean.
        .when(terms.datatype(term).isin(*sorted(TRUTH_TYPES)), sql.lit(False))
    )


@lru_cache(maxsize=256)
def _closure(
    expression: Expression, names: tuple[Variable, ...]
) -> Callable[[tuple[str | None, ...]], str | None]:
    dictionary = TermDictionary()
    now = value_of(
        Term(f'"{_EPOCH:%Y-%m-%dT%H:%M:%SZ}"^^<http://www.w3.org/2001/XMLSchema#dateTime>')
    )
    assert isinstance(now, DateTime)
    typed = TypedTerms(dictionary)
    compute = Compiler(Environment(typed, now), names).binding(expression)

    def evaluate(values: tuple[str | None, ...]) -> str | None:
        if len(dictionary) > _REMEMBERED:
            # A stream brings new terms for ever.
            _closure.cache_clear()
        row = tuple([UNBOUND if each is None else dictionary.encode(Term(each)) for each in values])
        result = compute(row)
        return None if result == UNBOUND else str(dictionary.decode(result))

    return evaluate
