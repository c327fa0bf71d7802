"""Constructor functions (SPARQL 1.1, section 17.5; XPath casting rules)."""

import math
from collections.abc import Callable
from decimal import Decimal

from annotations.namespaces import XSD
from tpf_client.sparql.algebra import Expression
from tpf_client.sparql.expressions.dates import (
    DATE_READERS,
    Date,
    DateTime,
    Duration,
    Time,
    read_date,
    read_date_time,
    read_time,
)
from tpf_client.sparql.expressions.environment import ArgumentCompiler, Solution, ValueOf
from tpf_client.sparql.expressions.terms import lexical_form
from tpf_client.sparql.expressions.values import (
    LONGEST,
    BlankNode,
    EvaluationError,
    Iri,
    LanguageString,
    Opaque,
    Single,
    Value,
    decimal_of_float,
    lexical_of,
    read_decimal,
    read_double,
    read_integer,
    shorten,
)

_BLANKS = " \t\r\n"


def _read(value: Value, reader: Callable[[str], Value | None]) -> Value:
    if type(value) is not str:
        raise EvaluationError
    lexical = value.strip(_BLANKS)
    result = reader(lexical) if len(lexical) <= LONGEST else None
    if result is None:
        raise EvaluationError
    return result


def to_boolean(value: Value) -> bool:
    """xsd:boolean(value)."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, Decimal)):
        return bool(value)
    if isinstance(value, float):
        return bool(value) and not math.isnan(value)
    return bool(_read(value, {"true": True, "1": True, "false": False, "0": False}.get))


def to_integer(value: Value) -> Value:
    """xsd:integer(value)."""
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            raise EvaluationError
        return int(value)
    if isinstance(value, (bool, int, Decimal)):
        return int(value)
    return _read(value, read_integer)


def to_decimal(value: Value) -> Value:
    """xsd:decimal(value)."""
    if isinstance(value, float):
        return decimal_of_float(value)
    if isinstance(value, (bool, int)):
        return Decimal(int(value))
    if isinstance(value, Decimal):
        return value
    result = _read(value, read_decimal)
    assert isinstance(result, Decimal)
    return shorten(result)


def to_double(value: Value) -> Value:
    """xsd:double(value)."""
    if isinstance(value, (bool, int, Decimal, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return _read(value, read_double)


def to_float(value: Value) -> Value:
    """xsd:float(value)."""
    double = to_double(value)
    assert isinstance(double, float)
    return Single(double)


def _to_date_time(value: Value) -> Value:
    if isinstance(value, DateTime):
        return value
    if isinstance(value, Date):
        return DateTime(value.year, value.month, value.day, 0, 0, Decimal(0), value.zone)
    return _read(value, read_date_time)


def _to_date(value: Value) -> Value:
    if isinstance(value, Date):
        return value
    if isinstance(value, DateTime):
        return Date(value.year, value.month, value.day, value.zone)
    return _read(value, read_date)


def _to_time(value: Value) -> Value:
    if isinstance(value, Time):
        return value
    if isinstance(value, DateTime):
        return Time(value.hour, value.minute, value.second, value.zone)
    return _read(value, read_time)


def _to_duration(name: str) -> Callable[[Value], Value]:
    def convert(value: Value) -> Value:
        if isinstance(value, Duration):
            months = 0 if name == "dayTimeDuration" else value.months
            seconds = Decimal(0) if name == "yearMonthDuration" else value.seconds
            return Duration(months, seconds, name)
        return _read(value, DATE_READERS[XSD + name])

    return convert


CASTS: dict[str, Callable[[Value], Value] | None] = {
    f"<{XSD}{name}>": function
    for name, function in {
        "string": None,
        "boolean": to_boolean,
        "integer": to_integer,
        "decimal": to_decimal,
        "double": to_double,
        "float": to_float,
        "dateTime": _to_date_time,
        "date": _to_date,
        "time": _to_time,
        "duration": _to_duration("duration"),
        "dayTimeDuration": _to_duration("dayTimeDuration"),
        "yearMonthDuration": _to_duration("yearMonthDuration"),
    }.items()
}
"""By the IRI of the datatype; xsd:string looks at the term too."""


def cast(compiler: ArgumentCompiler, name: str, argument: Expression) -> ValueOf:
    """The closure of a cast."""
    convert = CASTS[name]
    value = compiler.value(argument)
    if convert is not None:
        return lambda solution: convert(value(solution))
    term, decode = compiler.term(argument), compiler.typed.dictionary.decode

    def to_string(solution: Solution) -> Value:
        found = value(solution)
        match found:
            case Iri(text) | LanguageString(text, _):
                return text
            case BlankNode():
                raise EvaluationError
            case Opaque(kept):
                compiler.spend(len(kept))
                return lexical_form(decode(term(solution)))
        return found if type(found) is str else lexical_of(found)[0]

    return to_string
