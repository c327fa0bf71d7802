"""Terms in columns: canonical N-Triples texts, null where unbound.

Numbers are compared as doubles: integers above 2**53 that differ in their last digits, and decimals
that differ after the fifteenth, are equal.
"""

from collections.abc import Sequence
from math import isinf
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sql

from annotations.namespaces import XSD
from annotations.terms import Term
from tpf_client.sparql.expressions.values import BOUNDS, INTEGER_TYPES, value_of

_DECIMAL = XSD + "decimal"
_FLOAT = XSD + "float"
_MOMENTS = ("Date", "DateTime", "Time")
_DURATIONS = tuple(f"{XSD}{name}" for name in ("duration", "dayTimeDuration", "yearMonthDuration"))
CONTENT: Final = r'(?:[^"\\]|\\.)*+'
"""What is in a literal. Java overflows its stack at long ones that it may have to try again."""
_LANGUAGE = rf'^"({CONTENT})"@(.*)$'
_TYPED = rf'^"({CONTENT})"\^\^<([^>]*)>$'
_PLAIN = rf'^"({CONTENT})"$'
_IRI = "^<([^>]*)>$"
_POINTED = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"


def _up_to(most: float) -> str:
    """Return a regular expression of the digits of integers up to this one."""
    if isinf(most):
        return "[0-9]+"
    text = str(int(max(most, 0)))
    fewer = len(text) - 1
    parts = [
        f"{text[:at]}[0-{int(digit) - 1}][0-9]{{{fewer - at}}}"
        for at, digit in enumerate(text)
        if digit != "0"
    ]
    return f"(?=[0-9])0*(?:{'|'.join([f'[0-9]{{0,{fewer}}}', *parts, text])})"


def _integer(name: str, least: float, most: float) -> str:
    zero = "" if least <= 0 <= most else r'(?![+-]?0+ *")'
    return rf'{zero}(?:\+?{_up_to(most)}|-{_up_to(-least)}) *"\^\^<{name}'


# Integers of all types, within the bounds of their type.
_DERIVED = rf'^" *(?:{"|".join(_integer(name, *BOUNDS[name]) for name in sorted(BOUNDS))})>$'
_EXACT = rf'^" *(?:[+-]?[0-9]+ *"\^\^<{XSD}integer|{_POINTED} *"\^\^<{_DECIMAL})>$'
_NUMERIC = (
    rf'{_EXACT}|^" *(?:{_POINTED}(?:[eE][+-]?[0-9]+)?|[+-]?INF|NaN) *'
    rf'"\^\^<{XSD}(?:double|float)>$'
)


AT: Final = "at"
"""The column of the instant that a row belongs to."""
QUERY: Final = "query"
"""The column of the number of the query that a row belongs to."""


class Parameter(str):
    """A constant that differs between the queries of a plan; its text is that of the first one."""

    values: tuple[Term, ...]

    def __new__(cls, values: tuple[Term, ...]) -> "Parameter":
        made = super().__new__(cls, values[0])
        made.values = values
        return made


def constant(term: str) -> Column:
    """The column of a constant; of a parameter, in rows of a query."""
    return _of_query(term.values) if isinstance(term, Parameter) else sql.lit(str(term))


def constant_number(term: str) -> Column:
    """The column of a numeric constant as a double."""
    if isinstance(term, Parameter):
        return _of_query([repr(_float(each)) for each in term.values]).cast("double")
    return sql.lit(_float(Term(term)))


def _float(term: Term) -> float:
    return float(value_of(term))  # type: ignore[arg-type]


def _of_query(values: Sequence[str]) -> Column:
    # One literal: it is split before anything runs. Terms have no line ends.
    return sql.get(sql.split(sql.lit("\n".join(values)), "\n"), sql.col(QUERY))


def lexical(term: Column) -> Column:
    """The lexical form of a typed literal; otherwise empty."""
    return sql.regexp_extract(term, _TYPED, 1)


def datatype(term: Column) -> Column:
    """The datatype of a typed literal; otherwise empty."""
    return sql.regexp_extract(term, _TYPED, 2)


def content(term: Column) -> Column:
    """The content of a simple literal; otherwise null."""
    return sql.when(is_simple(term), unescaped(sql.regexp_extract(term, _PLAIN, 1)))


def escaped_lexical(term: Column) -> Column:
    """STR, escaped as in N-Triples; null for blank nodes and triple terms."""
    text = sql.regexp_extract(term, rf'^"({CONTENT})"', 1)
    return sql.when(is_iri(term), sql.regexp_extract(term, _IRI, 1)).when(is_literal(term), text)


def unescaped(text: Column) -> Column:
    """Unescape N-Triples (backslash and one letter)."""
    plain = sql.replace(text, sql.lit("\\\\"), sql.lit("\0"))
    for written, meant in (
        ("n", "\n"),
        ("r", "\r"),
        ("t", "\t"),
        ('"', '"'),
        ("b", "\b"),
        ("f", "\f"),
    ):
        plain = sql.replace(plain, sql.lit("\\" + written), sql.lit(meant))
    plain = sql.replace(plain, sql.lit("\0"), sql.lit("\\"))
    return sql.when(sql.contains(text, sql.lit("\\")), plain).otherwise(text)


def is_iri(term: Column) -> Column:
    """True for an IRI."""
    return term.startswith("<") & ~term.startswith("<<(")


def is_literal(term: Column) -> Column:
    """True for a literal."""
    return term.startswith('"')


def is_simple(term: Column) -> Column:
    """True for a string without a language."""
    return term.rlike(_PLAIN)


def number(term: Column) -> Column:
    """A numeric literal as a double; otherwise null."""
    # Spark casts more than XSD allows: "1d", "infinity".
    text = sql.replace(_digits(term), sql.lit("INF"), sql.lit("Infinity"))
    return sql.when(term.rlike(_NUMERIC) | term.rlike(_DERIVED), text.try_cast("double"))


def exact_number(term: Column) -> Column:
    """An integer or decimal with 18 fraction digits; otherwise null."""
    return sql.when(
        term.rlike(_EXACT) | term.rlike(_DERIVED), _digits(term).try_cast("decimal(38,18)")
    )


def _digits(number: Column) -> Column:
    return sql.substring_index(sql.substr(number, sql.lit(2)), '"', 1)


def rank(term: Column) -> Column:
    """0 integer, 1 decimal, 2 float, 3 double; otherwise null."""
    kind = datatype(term)
    return (
        sql.when(kind.isin(*sorted(INTEGER_TYPES)), 0)
        .when(kind == _DECIMAL, 1)
        .when(kind == _FLOAT, 2)
        .when(kind == XSD + "double", 3)
    )


def moment(term: Column) -> Column:
    """An xsd:dateTime, date or time (UTC without a zone), with its kind; otherwise null."""
    kind, text = datatype(term), lexical(term)
    midnight = sql.concat(
        sql.substring(text, 1, 10), sql.lit("T00:00:00"), sql.substr(text, sql.lit(11))
    )
    value = (
        sql.when(kind == XSD + "dateTime", text.try_cast("timestamp"))
        .when(kind == XSD + "date", midnight.try_cast("timestamp"))
        .when(kind == XSD + "time", sql.concat(sql.lit("1970-01-01T"), text).try_cast("timestamp"))
    )
    name = sql.element_at(
        sql.create_map(
            *(
                sql.lit(each)
                for kind in _MOMENTS
                for each in (f"{XSD}{kind[0].lower()}{kind[1:]}", kind)
            )
        ),
        kind,
    )
    return sql.when(value.isNotNull(), sql.struct(name.alias("kind"), value.alias("value")))


def boolean_value(term: Column) -> Column:
    """An xsd:boolean; otherwise null."""
    text = lexical(term)
    well = (datatype(term) == XSD + "boolean") & text.isin("true", "false", "1", "0")
    return sql.when(well, text.isin("true", "1"))


def spoken(term: Column) -> Column:
    """Language and text of a string; otherwise null."""
    language = sql.regexp_extract(term, _LANGUAGE, 2)
    text = unescaped(sql.regexp_extract(term, _LANGUAGE, 1))
    return sql.when(language != "", sql.struct(language.alias("language"), text.alias("text")))


def integer(value: Column) -> Column:
    """The term of a whole number."""
    return sql.concat(sql.lit('"'), value.cast("string"), sql.lit(f'"^^<{XSD}integer>'))


def order_key(term: Column) -> Column:
    """A key for ORDER BY, MIN and MAX, as in `tpf_client.sparql.ordering`.

    Unbound, blank nodes, IRIs, literals; of these numbers (NaN first), booleans, strings, strings
    in languages, dates and times, and others by their texts.
    """
    kind = (
        sql.when(term.isNull(), 0)
        .when(term.startswith("_:"), 1)
        .when(is_iri(term), 2)
        .when(is_literal(term), 3)
        .otherwise(4)
    )
    value, when, spoken_value = number(term), moment(term), spoken(term)
    class_ = (
        sql.when(kind < 3, 0)
        .when(value.isNotNull(), sql.when(sql.isnan(value), -1).otherwise(0))
        .when(boolean_value(term).isNotNull(), 1)
        .when(is_simple(term), 2)
        .when(spoken_value.isNotNull(), 3)
        .when(when.isNotNull(), 4)
        .when(datatype(term).isin(*_DURATIONS), 5)
        .otherwise(6)
    )
    # An IRI without its brackets, as the other order has it.
    bare = sql.when(kind == 2, sql.regexp_extract(term, _IRI, 1)).otherwise(term)
    return sql.struct(
        kind.alias("kind"),
        class_.alias("class"),
        value.alias("value"),
        boolean_value(term).alias("truth"),
        spoken_value.alias("spoken"),
        when.alias("moment"),
        sql.when(
            class_.isin(0, 2, 4, 5, 6),
            sql.when(value.isNull() & when.isNull(), sql.coalesce(content(term), bare)),
        ).alias("text"),
    )
