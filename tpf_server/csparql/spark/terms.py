"""Terms in columns: canonical N-Triples texts, null where unbound; what Spark SQL reads in them.

Numbers are compared as doubles; strings by their N-Triples text. So integers above 2**53 that
differ in their last digits, and decimals that differ after the fifteenth digit, count as equal.
"""

from pyspark.sql import Column
from pyspark.sql import functions as sql

from annotations.namespaces import XSD
from tpf_client.sparql.expressions.values import INTEGER_TYPES

_DECIMAL = XSD + "decimal"
_FLOATING = (XSD + "double", XSD + "float")
_TYPED = r'^"((?:[^"\\]|\\.)*)"\^\^<([^>]*)>$'
_PLAIN = r'^"((?:[^"\\]|\\.)*)"$'


def lexical(term: Column) -> Column:
    """The lexical form of a literal with a datatype other than string; otherwise empty."""
    return sql.regexp_extract(term, _TYPED, 1)


def datatype(term: Column) -> Column:
    """The datatype of such a literal; otherwise empty."""
    return sql.regexp_extract(term, _TYPED, 2)


def content(term: Column) -> Column:
    """The content of a simple literal; null for all others."""
    return sql.when(is_simple(term), sql.regexp_extract(term, _PLAIN, 1))


def is_iri(term: Column) -> Column:
    """Whether it is an IRI."""
    return term.startswith("<") & ~term.startswith("<<(")


def is_literal(term: Column) -> Column:
    """Whether it is a literal."""
    return term.startswith('"')


def is_simple(term: Column) -> Column:
    """Whether it is a string without a language."""
    return term.rlike(_PLAIN)


def number(term: Column) -> Column:
    """The value of a numeric literal as a double; null for all other terms."""
    kinds = (*sorted(INTEGER_TYPES), _DECIMAL, *_FLOATING)
    text = sql.regexp_replace(lexical(term), "INF", "Infinity")
    return sql.when(datatype(term).isin(*kinds), text.try_cast("double"))


def exact(term: Column) -> Column:
    """The value of an integer or decimal, with 18 digits behind the point; null for others."""
    kinds = (*sorted(INTEGER_TYPES), _DECIMAL)
    return sql.when(datatype(term).isin(*kinds), lexical(term).try_cast("decimal(38,18)"))


def rank(term: Column) -> Column:
    """0 for an integer, 1 for a decimal, 2 for a float or double; null for all other terms."""
    kind = datatype(term)
    return (
        sql.when(kind.isin(*sorted(INTEGER_TYPES)), 0)
        .when(kind == _DECIMAL, 1)
        .when(kind.isin(*_FLOATING), 2)
    )


def instant(term: Column) -> Column:
    """The value of an xsd:dateTime (UTC where it has no zone); null for all other terms."""
    kind = datatype(term)
    return sql.when(kind == XSD + "dateTime", lexical(term).try_cast("timestamp"))


def integer(value: Column) -> Column:
    """The term of a whole number."""
    return sql.concat(sql.lit('"'), value.cast("string"), sql.lit(f'"^^<{XSD}integer>'))


def order_key(term: Column) -> Column:
    """What ORDER BY, MIN and MAX compare: unbound, blank nodes, IRIs, literals; numbers first."""
    kind = (
        sql.when(term.isNull(), 0).when(term.startswith("_:"), 1).when(is_iri(term), 2).otherwise(3)
    )
    value = number(term)
    return sql.struct(
        kind.alias("kind"),
        sql.when(value.isNull(), 1).otherwise(0).alias("class"),
        value.alias("value"),
        instant(term).alias("instant"),
        sql.coalesce(content(term), term).alias("text"),
    )
